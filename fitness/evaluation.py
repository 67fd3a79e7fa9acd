"""The nouns of measurement: Job, Verdict, Evaluation."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

PROTOCOL = "1"
"""Version of the judge's protocol; results of different versions are never mixed."""

LOG_LIMIT = 8_000
"""Characters of candidate output kept with an evaluation."""


SEE_DOCTOR = "`kb-evolve doctor` says what this machine has, and which versions are known to work"
"""The end of a JudgeError about what is installed here."""


class JudgeError(Exception):
    """The judge, its device or its sandbox failed; never the candidate's fault."""


class Verdict(enum.StrEnum):
    """The judge's answer on one candidate."""

    CORRECT = "correct"
    VERIFIED = "verified"
    """Right on every draw but not timed: its device is not here (Triton's interpreter, a build for another GPU)."""
    COMPILE_ERROR = "compile_error"
    LOAD_ERROR = "load_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"
    CONTRACT = "contract"
    NO_VERDICT = "no_verdict"


@dataclass(frozen=True, slots=True)
class Job:
    """All that a judge needs to measure one program, as plain JSON values."""

    problem: str
    """The problem's id, for messages."""
    problem_source: str
    source: str
    backend: str = "cpp"
    device: str = "cpu"
    arch: str = ""
    """What GPU code is compiled for (`sm_90`); empty: the device's own, or sm_90 where there is no GPU."""
    precision: str = "fp32"
    allow_fast_math: bool = False
    incumbent_ms: float | None = None
    """Best kernel_ms so far: a candidate that is clearly slower stops after the first look."""
    timeout_s: float = 30.0
    """Longest time that one forward call may take; the build has `build_timeout_s`."""
    build_timeout_s: float = 240.0
    """nvcc needs 69 s for torch's full headers on an idle machine."""
    memory_bytes: int = 8 << 30
    """Resident memory that the candidate's process may use."""
    fresh: bool = False
    """Measure on timed inputs that were never used before: for duels."""
    profile: bool = False
    """Profile a correct candidate after it was timed (fitness/profile.py): some seconds more of the device."""

    @property
    def source_sha256(self) -> str:
        """Hex digest of the candidate's exact source bytes."""
        return hashlib.sha256(self.source.encode()).hexdigest()


TIMED_FIELDS = ("kernel_ms", "kernel_ms_ci", "reference_ms", "speedup", "speedup_ci")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one judgement found. Times exist if and only if the verdict is CORRECT.

    Raises ValueError when built with times and a failed verdict, without times and a correct one,
    or with a time that is not finite and positive.
    """

    verdict: Verdict
    reason: str
    """One sentence with numbers."""
    problem: str
    backend: str
    source_sha256: str
    baseline: str = "eager"
    """What reference_ms measured: `eager` in the run's own precision policy."""
    kernel_ms: float | None = None
    kernel_ms_ci: tuple[float, float] | None = None
    """95% interval of the centre (fitness/timing.py)."""
    reference_ms: float | None = None
    speedup: float | None = None
    """Centre over rounds of reference / candidate, the two measured in the same round."""
    speedup_ci: tuple[float, float] | None = None
    max_abs_err: float | None = None
    error_ratio: float | None = None
    """Candidate's error over the reference's own error, both against fp64."""
    peak_mem_bytes: int | None = None
    compile_s: float | None = None
    evaluate_s: float | None = None
    """Wall seconds in the judge, the build not counted."""
    features: dict[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    log: str = ""
    device_name: str = ""
    sandbox: str = ""
    tier: str = ""
    """T1 (batches) or T2 (one input at a time): see docs/judge.md."""
    rounds: int = 0
    draws: int = 0
    """Checked outputs, the timed ones included."""
    overhead_ms: float | None = None
    """A trusted no-op measured the same way; reported, never subtracted."""
    kernelbench_correct: bool | None = None
    """What KernelBench's own rule says on draws of the problem's own inputs (fitness/kernelbench.py), right or wrong by
    ours; None where no outputs came."""
    judge_sha256: str = ""
    protocol: str = PROTOCOL

    def __post_init__(self) -> None:
        timed = [name for name in TIMED_FIELDS if getattr(self, name) is not None]
        if self.verdict is Verdict.CORRECT and len(timed) != len(TIMED_FIELDS):
            raise ValueError(f"a correct evaluation needs all of {TIMED_FIELDS}, has only {timed}")
        if self.verdict is not Verdict.CORRECT and timed:
            raise ValueError(f"a {self.verdict} evaluation must not have times, has {timed}")
        for name in timed:
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if not (math.isfinite(number) and number > 0):
                    raise ValueError(f"{name} must be finite and positive, found {value}")

    @property
    def is_correct(self) -> bool:
        return self.verdict is Verdict.CORRECT

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values under the names of the outer contract."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Evaluation:
        """The evaluation that `to_json` wrote; unknown keys raise TypeError."""
        values = dict(document)
        values["verdict"] = Verdict(values["verdict"])
        values["labels"] = tuple(values.get("labels") or ())
        for name in ("kernel_ms_ci", "speedup_ci"):
            if values.get(name) is not None:
                low, high = values[name]
                values[name] = (low, high)
        return cls(**values)
