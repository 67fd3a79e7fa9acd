"""One problem on the judge's bench: its oracle, its secret inputs with their bounds, its reference runner."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitness import room, timing, verify, wire
from fitness.calls import Call, Runner
from fitness.children import Zygote
from fitness.draws import SURPRISES, VERIFICATION, Draw, Pool, check, too_unstable
from fitness.evaluation import Job
from fitness.process import CALLS_WAITED, Limits, Patience
from fitness.questions import OracleClient
from fitness.rounds import Plan
from fitness.sandbox import Policy, candidate_uid, live_dir
from fitness.usual import Usual
from fitness.wire import Layout, Segment
from problems.inputs import FAMILIES

if TYPE_CHECKING:
    pass

POOL_BYTES = 768 << 20
MOST_DRAWS = 96
POOL_DRAWS, FRESH_DRAWS = 20, 12
"""Draws per call of a batch; a duel's own pool is smaller, since only one candidate uses it."""
SHORT_MS, BATCH_MS, MOST_CALLS = 2.0, 4.0, 8
"""A reference faster than SHORT_MS is timed in batches of about BATCH_MS (tier T1)."""
NO_OP = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.rand(16)]
def get_init_inputs():
    return []
"""
COMPILE_FILE_BYTES = 2 << 30

BASELINES = {
    "eager": ("", ""),
    "eager_tf32": ("", "tf32"),
    "compile": ("default", ""),
    "compile_max_autotune": ("max-autotune-no-cudagraphs", ""),
}
"""Kind of baseline -> (torch.compile's mode, precision instead of the run's own). Without CUDA graphs, whose outputs
lie in memory that the next call overwrites."""


def tf32_complaint(kind: str, precision: str) -> str:
    """Why a baseline in TF32, a way to compute products of fp32 tensors, cannot be had; empty where it can."""
    if BASELINES[kind][1] != "tf32" or precision in ("fp32", "tf32"):
        return ""
    return f"computes products of fp32 tensors in TF32, and precision {precision} has no fp32 tensors"


class Session:
    """A problem made ready: all that is expensive and the same for each of its candidates."""

    looks, precision = timing.LOOKS, timing.PRECISION
    timed_s = 1.5
    """Timed rounds of one candidate stop after this long, once enough of them are in."""
    single_plan = Plan(1, most_rounds=20, is_whole=True, has_exam=False)
    """How single calls are timed, to see whether a batch hid something."""
    rounds_per_process = 7
    """Three processes for the first twenty rounds."""
    fixed_ms = 0.0
    """What a window of many calls costs around them: nothing that could be told from them."""
    put_off_share = 0.05
    """Letting go of outputs takes 0.02 to 0.1 ms on either side: by less than this share of a window it is noise."""
    warm_rounds = 6
    """Untimed rounds of a new process: heap, page tables and thread pools fill up in them."""
    warm_again = warm_rounds
    """The same of a candidate's later processes."""

    def __init__(self, zygote: Zygote, job: Job, *, fenced: bool) -> None:
        """Loads the problem, draws the first checks and times the reference roughly: seconds.

        Raises ProblemError when the problem's own code fails or its reference is too unstable to judge by.
        """
        self._zygote, self.job, self._fenced, self.calls = zygote, job, fenced, 1
        self.limits = Limits(max(job.timeout_s, 60.0), 2 * job.memory_bytes)
        self._dir = Path(tempfile.mkdtemp(prefix="problem-", dir=live_dir()))
        self._dir.chmod(0o711)
        self._source = self._dir / "problem.py"
        self._source.write_text(job.problem_source)
        self._source.chmod(0o644)
        policy = private_policy((str(self._dir),), fenced=fenced)
        self._oracle = OracleClient(zygote, str(self._source), job.precision, policy, self.limits)
        self.facts = self._oracle.facts
        self.inputs = [Layout.from_json(entry) for entry in self.facts["inputs"] if "shape" in entry]
        self.outputs = [Layout.from_json(entry) for entry in self.facts["outputs"]]
        self.state_layouts = [Layout.from_json(entry) for entry in self.facts["state"]]
        room.check(job, self.inputs, self.outputs, self.state_layouts)
        shapes = [layout.shape for layout in (*self.inputs, *self.state_layouts)]
        self._terms = verify.longest_sum(shapes, [layout.shape for layout in self.outputs])
        self._state = self._sealed_state()
        self._verification: dict[bool, list[Draw]] = {}
        self._pool: dict[bool, list[Draw]] = {}
        self._unexpected: dict[bool, list[list[Draw]]] = {}
        self.usual: Usual | None = Usual()
        self.unusable: dict[str, float] = {}
        """Families that the reference itself cannot compute in its own precision: share of bad elements."""
        self.pilot_ms = self._pilot()
        self.calls = self._batch()

    def verification(self, is_copied: bool) -> list[Draw]:
        """The draws of the first check, with their oracles."""
        if is_copied not in self._verification:
            draws = [self._draw(family, is_copied, keep=True) for family in VERIFICATION if self._is_open(family)]
            self._verification[is_copied] = [draw for draw in draws if self._usable(draw)]
        if not any(draw.family == "own" for draw in self._verification[is_copied]):
            raise too_unstable(self.job, self.unusable.get("own", 1.0))
        return self._verification[is_copied]

    def feed(self, is_copied: bool, plan_calls: int, *, fresh: bool) -> Pool:
        """Where the timed rounds get their inputs; `fresh`: what no process has seen, in every process."""
        renew = functools.partial(self.pool, is_copied, fresh=True) if fresh else None
        return Pool(self.pool(is_copied, fresh=fresh), self._surprises(is_copied), plan_calls, renew)

    def compare(self, theirs: Call, ours: Call | None, batch: Sequence[Draw], is_copied: bool) -> None:
        """Raises CandidateFailed unless every output of the candidate's call is right."""
        del ours, is_copied
        check(theirs, batch)

    def pool(self, is_copied: bool, *, fresh: bool) -> list[Draw]:
        """The draws of the timed rounds; a process sees each at most once. `fresh` makes new ones."""
        if fresh or is_copied not in self._pool:
            self.verification(is_copied)
            families = self._timed_families(is_copied)
            draws: list[Draw] = []
            size = 0
            while len(draws) < MOST_DRAWS and (size < POOL_BYTES or len(draws) < room.FEWEST_DRAWS):
                if len(draws) >= (FRESH_DRAWS if fresh else POOL_DRAWS) * self.calls:
                    break
                draw = self._draw(families[len(draws) % len(families)], is_copied, keep=False)
                size += sum(t.numel() * t.element_size() for t in draw.inputs) + sum(e.nbytes for e in draw.expected)
                draws.append(draw)
            self._pool[is_copied] = draws
        return self._pool[is_copied]

    def reference(self, is_copied: bool, kind: str = "eager") -> Runner:
        """A clean process with the reference in it; `kind` is one of BASELINES. Raises CandidateFailed if it fails."""
        state = self._state if is_copied else None
        mode, _ = BASELINES[kind]
        spec = self._spec(str(self._source), "Model", state, mode=mode) | {"is_trusted": True}
        policy = private_policy((str(self._dir),), processes=bool(mode), fenced=self._fenced)
        if mode:  # torch.compile precompiles its headers: hundreds of MB
            policy = dataclasses.replace(policy, file_bytes=COMPILE_FILE_BYTES)
        limits = Limits(600.0, self.limits.memory_bytes) if mode else self.limits
        return Runner(self._zygote, spec, policy, self.outputs, limits, state)

    def timed_reference(self, is_copied: bool) -> Runner:
        """A reference for one candidate's timed rounds."""
        return self.reference(is_copied)

    def give_back(self, reference: Any) -> None:
        """After timed rounds: it has seen its inputs and ends."""
        reference.close()
        reference.child.discard()

    def candidate(
        self, artifact_dir: str, limits: Limits, *, own_threads: bool, writable_inputs: bool = False
    ) -> Runner:
        """A fresh process with the candidate in it. Raises CandidateFailed if it cannot be loaded."""
        folder = Path(artifact_dir)
        spec = self._spec(str(folder / "candidate.py"), "ModelNew", self._state, products=str(folder / "products"))
        spec |= {"writable_inputs": writable_inputs, "own_threads": own_threads}
        policy = private_policy((artifact_dir,), fenced=self._fenced)
        return Runner(self._zygote, spec, policy, self.outputs, limits, self._state)

    def single_slack_ms(self, batched_ms: float) -> float:
        """How much longer than one call of a batch a single call may take before its own time becomes the score."""
        del batched_ms
        return 0.005

    def candidate_limits(self, job: Job) -> Limits:
        """What one call of a candidate may take."""
        return Limits(job.timeout_s, job.memory_bytes, patience=Patience(CALLS_WAITED * job.timeout_s))

    def close(self) -> None:
        """Ends the oracle and removes the problem's folder."""
        self._oracle.close()
        shutil.rmtree(self._dir, ignore_errors=True)

    def _spec(
        self,
        source: str,
        name: str,
        state: Segment | None,
        *,
        products: str | None = None,
        mode: str = "",
    ) -> dict[str, Any]:
        return {
            "source_path": source,
            "class_name": name,
            "products_dir": products,
            "compile": mode,
            "device": "cpu",
            "backend": self.job.backend,
            "arch": self.job.arch,
            "precision": self.job.precision,
            "writable_inputs": False,
            "own_threads": False,
            "is_trusted": False,
            "init": self.facts["init"],
            "inputs": self.facts["inputs"],
            "state": self.facts["state"] if state is not None else [],
            "slots": max(2, self.calls),
        }

    def _sealed_state(self) -> Segment | None:
        if not self.state_layouts:
            return None
        segment = Segment(wire.offsets(self.state_layouts)[1])
        segment.seal()
        source = self._oracle.state(self.state_layouts)
        for place, tensor in zip(segment.tensors(self.state_layouts), source, strict=True):
            place.copy_(tensor)
        return segment

    def _draw(self, family: str, is_copied: bool, *, keep: bool) -> Draw:
        inputs, narrow, wide = self._oracle.draw(family, is_copied, self.inputs, self.outputs)
        pairs = [(r.clone(), y.clone()) if keep else (r, y) for r, y in zip(narrow, wide, strict=True)]
        inputs = [tensor.clone() for tensor in inputs]
        moved = functools.partial(self._oracle.sensitivity, is_copied, self.inputs, self.outputs)
        expected = verify.expect_all(pairs, self._terms, moved, precision=self.job.precision, keep=keep)
        return Draw(family, inputs, expected)

    def _surprises(self, is_copied: bool) -> list[list[Draw]]:
        """Batches of the usable families that are not timed, made once."""
        if is_copied not in self._unexpected:
            timed = self._timed_families(is_copied)
            usable = {draw.family for draw in self.verification(is_copied)}
            self._unexpected[is_copied] = [
                [self._draw(family, is_copied, keep=False) for _ in range(self.calls)]
                for family in FAMILIES
                if family in usable and family not in timed
                for _ in range(SURPRISES)
            ]
        return self._unexpected[is_copied]

    def _timed_families(self, is_copied: bool) -> list[str]:
        """Own and signed inputs in turn; without those that the reference cannot do or that never change."""
        import torch

        draws = self.verification(is_copied)
        first, second = [draw for draw in draws if draw.family == "own"][:2]
        own_changes = any(not torch.equal(a, b) for a, b in zip(first.inputs, second.inputs, strict=True))
        has_normal = any(draw.family == "normal" for draw in draws)
        return (["own"] if own_changes or not has_normal else []) + (["normal"] if has_normal else [])

    def _is_open(self, family: str) -> bool:
        """Whether redrawing can change anything: only floating inputs are redrawn."""
        return family == "own" or any("float" in layout.dtype for layout in self.inputs)

    def _usable(self, draw: Draw) -> bool:
        share = max((expected.unusable_share for expected in draw.expected), default=0.0)
        if not all(expected.is_usable for expected in draw.expected):
            self.unusable[draw.family] = share
            return False
        return True

    def _pilot(self) -> float:
        """The reference's time of one call [ms], roughly."""
        is_copied = self._state is not None
        runner = self.reference(is_copied)
        try:
            draws = self.verification(is_copied)
            windows = [runner.call([draw.inputs]).window_ms for draw in (draws * 3)[:6]]
        finally:
            runner.close()
            runner.child.discard()
        return min(windows)

    def _batch(self) -> int:
        if self.pilot_ms >= SHORT_MS:
            return 1
        held = sum(layout.nbytes for layout in (*self.inputs, *self.outputs))
        fits = max(1, min(POOL_BYTES // max(1, 8 * held), wire.MAX_REPLY_OUTPUTS // max(1, len(self.outputs))))
        return max(1, min(MOST_CALLS, fits, round(BATCH_MS / self.pilot_ms)))


_slots = iter(range(1 << 62))


def private_policy(read: tuple[str, ...], *, processes: bool = False, fenced: bool = True) -> Policy:
    """A policy with a new private folder; the folder goes with Child.discard."""
    folder = tempfile.mkdtemp(prefix="run-", dir=live_dir())
    uid = candidate_uid(next(_slots) + os.getpid() * 64) if fenced else None
    if uid is not None:
        os.chown(folder, uid, uid)
    return Policy(folder, read, processes=processes, uid=uid, fenced=fenced)
