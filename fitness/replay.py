"""A workbench over a scripted landscape: the search loop without compilers and clocks.

Replay has the methods of `fitness.workbench.Workbench` and answers from a function of the source
text instead of a measurement. It is used to simulate policies over thousands of evaluations and to
test the loop (kills, overlap, order, noise, failing judges). Its figures are invented and carry the
device name `replay`, so they cannot be taken for measured ones.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fitness.evaluation import Evaluation, Job, JudgeError, Verdict

TUNABLE = re.compile(r"constexpr\s+\w+\s+(\w+)\s*=\s*(\d+)\s*;")
FLAGS = re.compile(r"^CFLAGS\s*=\s*\[(.*)\]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the landscape sees of a source: tunables, compiler flags, pragmas."""

    source: str
    tunables: dict[str, int]
    flags: tuple[str, ...]
    pragmas: tuple[str, ...]


def read(source: str) -> Reading:
    """The features of a lean candidate that decide its simulated time."""
    flags = FLAGS.search(source)
    return Reading(
        source=source,
        tunables={name: int(value) for name, value in TUNABLE.findall(source)},
        flags=tuple(re.findall(r"[\"']([^\"']+)[\"']", flags.group(1))) if flags else (),
        pragmas=tuple(re.findall(r"^\s*#pragma\s+(.*\S)", source, re.MULTILINE)),
    )


def bowl(reading: Reading) -> float:
    """kernel_ms of a plausible kernel: each good flag and pragma helps, each tunable has one best value.

    A tunable's best value is a power of two from 4 to 512 that follows from its name; being d octaves
    away from it costs the factor 1 + 0.1 d^2, with d at most 4.
    """
    time_ms = 8.0
    gains = {"-O3": 0.85, "-march=native": 0.7, "-ffast-math": 0.9, "-fopenmp": 0.95}
    for flag, factor in gains.items():
        time_ms *= factor if flag in reading.flags else 1.0
    time_ms *= 0.8 ** min(len(set(reading.pragmas)), 4)
    for name, value in reading.tunables.items():
        best = 2 ** (2 + hashlib.sha256(name.encode()).digest()[0] % 8)
        time_ms *= 1.0 + 0.1 * min(abs(math.log2(max(value, 1) / best)), 4.0) ** 2
    return time_ms


@dataclass(frozen=True, slots=True)
class Failure:
    """A scripted failure of every source in which `pattern` (a regular expression) is found."""

    pattern: str
    verdict: Verdict | None
    """What is answered; None raises JudgeError, as a broken judge does."""
    at_build: bool = False
    times: int | None = None
    """How many of a source's calls fail before they succeed; None: all."""


@dataclass(frozen=True, slots=True)
class Landscape:
    """How sources turn into times, in milliseconds, and how long answering takes, in seconds."""

    kernel_ms: Callable[[Reading], float] = bowl
    reference_ms: float = 4.0
    noise: float = 0.0
    """Standard deviation of the logarithm of a measured time."""
    seed: int = 0
    build_s: float = 0.0
    measure_s: float = 0.0
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayArtifact:
    """What `build` returns: nothing to run, only whether building failed."""

    source_sha256: str
    failure: Evaluation | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """One call that was answered: when it worked, on the monotonic clock."""

    stage: str
    source_sha256: str
    started_s: float
    ended_s: float


class Replay:
    """A workbench that answers from a landscape; thread-safe, one measurement at a time."""

    def __init__(self, landscape: Landscape | None = None) -> None:
        self.landscape = landscape or Landscape()
        self.spans: list[Span] = []
        self._device = threading.Lock()
        self._guard = threading.Lock()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._closed = threading.Event()

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def build(self, job: Job) -> ReplayArtifact:
        """After `build_s`, an artifact, with `failure` set where a failure is scripted at the build."""
        started_s = time.monotonic()
        self._wait(self.landscape.build_s)
        number = self._count("build", job)
        self._record("build", job, started_s)
        return ReplayArtifact(job.source_sha256, self._failure(job, number, at_build=True))

    def measure(self, job: Job, artifact: ReplayArtifact) -> Evaluation:
        """After `measure_s` on the one device, the landscape's answer for the source."""
        if artifact.failure is not None:
            return artifact.failure
        with self._device:
            started_s = time.monotonic()
            self._wait(self.landscape.measure_s)
            number = self._count("measure", job)
            self._record("measure", job, started_s)
        return self._failure(job, number, at_build=False) or self._answer(job, number)

    def evaluate(self, job: Job) -> Evaluation:
        """Build and measure."""
        return self.measure(job, self.build(job))

    def baseline(self, job: Job, kind: str = "eager") -> dict[str, Any]:
        """The reference's scripted time under the names that the workbench uses."""
        factor = {"eager": 1.0, "compile": 0.8}.get(kind)
        if factor is None:
            raise JudgeError(f"replay knows the baselines eager and compile, was asked for {kind!r}")
        time_ms = self.landscape.reference_ms * factor
        return {
            "kind": kind,
            "ms": time_ms,
            "ms_ci": [time_ms * 0.99, time_ms * 1.01],
            "speedup_vs_eager": 1.0 / factor,
            "device_name": "replay",
        }

    def close(self) -> None:
        """Wakes every waiting call; they raise JudgeError."""
        self._closed.set()

    def _wait(self, seconds: float) -> None:
        if self._closed.wait(seconds) if seconds else self._closed.is_set():
            raise JudgeError("the workbench was closed while a candidate was being judged")

    def _count(self, stage: str, job: Job) -> int:
        with self._guard:
            self._calls[stage, job.source_sha256] += 1
            return self._calls[stage, job.source_sha256]

    def _record(self, stage: str, job: Job, started_s: float) -> None:
        span = Span(stage, job.source_sha256, started_s, time.monotonic())
        with self._guard:
            self.spans.append(span)

    def _failure(self, job: Job, number: int, *, at_build: bool) -> Evaluation | None:
        for failure in self.landscape.failures:
            expired = failure.times is not None and number > failure.times
            if failure.at_build != at_build or expired or not re.search(failure.pattern, job.source):
                continue
            if failure.verdict is None:
                raise JudgeError(f"scripted failure of the judge on call {number} ({failure.pattern})")
            return _evaluation(job, verdict=failure.verdict, reason=f"scripted: {failure.pattern} was found")
        return None

    def _answer(self, job: Job, number: int) -> Evaluation:
        """The same for the same source, seed and count of earlier measurements of that source."""
        landscape = self.landscape
        noise = random.Random(f"{landscape.seed}:{job.source_sha256}:{number}").gauss(0.0, landscape.noise)
        kernel_ms = landscape.kernel_ms(read(job.source)) * math.exp(noise)
        speedup = landscape.reference_ms / kernel_ms
        width = math.exp(1.96 * landscape.noise) if landscape.noise else 1.005
        return _evaluation(
            job,
            verdict=Verdict.CORRECT,
            reason=f"scripted: {kernel_ms:.4g} ms against {landscape.reference_ms:.4g} ms",
            kernel_ms=kernel_ms,
            kernel_ms_ci=(kernel_ms / width, kernel_ms * width),
            reference_ms=landscape.reference_ms,
            speedup=speedup,
            speedup_ci=(speedup / width, speedup * width),
            max_abs_err=0.0,
            error_ratio=1.0,
            peak_mem_bytes=1 << 20,
            rounds=20,
            draws=20,
        )


def _evaluation(job: Job, **values: Any) -> Evaluation:
    return Evaluation(
        problem=job.problem,
        backend=job.backend,
        source_sha256=job.source_sha256,
        device_name="replay",
        sandbox="none",
        compile_s=0.0,
        evaluate_s=0.0,
        **values,
    )
