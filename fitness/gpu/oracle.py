"""The problem's process on a GPU, seen from the judge, and the endless stream of batches that it draws."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fitness import wire
from fitness.children import Zygote
from fitness.draws import SURPRISE_SHARE, Draw
from fitness.evaluation import Job
from fitness.gpu.room import WINDOW_MS
from fitness.process import Limits
from fitness.questions import ProblemProcess
from fitness.sandbox import Policy
from problems.inputs import FAMILIES

if TYPE_CHECKING:
    from fitness.gpu.session import GpuSession

SLOW_WINDOW_MS, FAST_WINDOW_MS = 200.0, 8.0
EXAM_FAMILIES = 2
"""A batch of hundreds of calls costs a tenth of a second, so not every family comes after every candidate's rounds."""
MANY_ROUNDS = 1 << 30


class GpuOracle(ProblemProcess):
    """Draws and exact results go into memory of the judge's, which it opens by handle."""

    def __init__(self, zygote: Zygote, problem_path: str, job: Job, policy: Policy, limits: Limits) -> None:
        spec = {"problem_path": problem_path, "device": job.device, "precision": job.precision}
        super().__init__(zygote, "gpu_oracle", spec, policy, limits)

    def map(self, handles: dict[str, bytes]) -> None:
        """Gives it memory of ours to write to."""
        text = json.dumps({name: handle.hex() for name, handle in handles.items()})
        os.pwrite(self._facts_fd, text.encode().ljust(1 << 16), 0)
        self.ask(wire.MAP, 0, "opening the judge's memory")

    def inputs(self, family: str, calls: int) -> None:
        """Writes a batch of fresh inputs."""
        self.ask(wire.INPUTS, FAMILIES.index(family) | calls << 17, f"drawing inputs of family {family}")

    def exact(self, slot: int, is_copied: bool) -> None:
        """Writes its results and fp64 results on the inputs in one slot."""
        self.ask(wire.EXACT, slot << 17 | (wire.COPIED if is_copied else 0), "computing exact results")

    def sensitivity(self, slot: int, is_copied: bool) -> None:
        """Writes how rounding of weights and of the inputs in one slot moves the fp64 results."""
        doing = "measuring how its results amplify rounding"
        self.ask(wire.SENSITIVITY, slot << 17 | (wire.COPIED if is_copied else 0), doing)


class Stream:
    """Batches of fresh inputs without end."""

    rounds = MANY_ROUNDS
    """Batches that one process can be given: inputs never come again."""

    def __init__(self, session: GpuSession, is_copied: bool, calls: int) -> None:
        self._session, self._calls = session, calls
        self._families, self._others = session.timed_families(is_copied), session.other_families(is_copied)

    def batches(self, order: random.Random) -> Iterator[tuple[list[Draw], bool]]:
        """Timed families in turn, and whether a batch's time counts: at places that nobody can foresee comes a batch of
        another family, so whoever is careful only where it expects to be examined is caught."""
        turn = order.randrange(len(self._families))
        for number in itertools.count():
            if self._others and order.random() < SURPRISE_SHARE:
                yield self._session.new_batch(order.choice(self._others), self._calls), False
            yield self._session.new_batch(self._families[(turn + number) % len(self._families)], self._calls), True

    def exam(self) -> Iterator[list[Draw]]:
        """After the last timed round, which nobody can know to be the last: batches of two other families."""
        for family in random.SystemRandom().sample(self._others, min(EXAM_FAMILIES, len(self._others))):
            yield self._session.new_batch(family, self._calls)

    def adapt(self, window_ms: float, *, is_last: bool) -> bool:
        """After an untimed batch: fewer calls for a candidate that is much slower than the reference, more for a much
        faster one, after the last such batch. Whether one more is needed."""
        if window_ms > SLOW_WINDOW_MS:
            self._calls = max(1, int(self._calls * SLOW_WINDOW_MS / window_ms))
        most = self._session.capacity
        if not is_last or window_ms > FAST_WINDOW_MS or not 1 < self._calls < most:
            return False
        self._calls = min(most, int(self._calls * WINDOW_MS / window_ms))
        return True
