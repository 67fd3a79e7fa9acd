"""Draws: fresh inputs and what must come out, and the order in which timed rounds get them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitness import verify
from fitness.calls import Call
from fitness.evaluation import Job, Verdict
from fitness.process import CandidateFailed
from fitness.verify import Expected
from problems.problem import ProblemError

if TYPE_CHECKING:
    import torch

VERIFICATION = ("own", "own", "normal", "wide", "sparse", "edge", "spikes")
"""Families of the draws that a candidate must pass before it is timed."""
SURPRISES, SURPRISE_SHARE = 3, 0.15
"""Batches of each family that is not timed, and how often one comes before a round."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One set of fresh inputs, which no candidate has seen, and what must come out."""

    family: str
    inputs: list[torch.Tensor]
    expected: list[Expected]


def check(call: Call, batch: Sequence[Draw]) -> None:
    """Raises CandidateFailed unless every output of the call is right."""
    for outputs, draw in zip(call.outputs, batch, strict=True):
        for index, (actual, expected) in enumerate(zip(outputs, draw.expected, strict=True)):
            if not verify.is_right(actual, expected):
                raise wrong(draw, index, verify.complaint(actual, expected), len(outputs))
    for sample in call.samples:
        if not verify.stretch_is_right(sample.values, batch[sample.call].expected[sample.output], sample.start):
            raise too_late(batch[sample.call])


def wrong(draw: Draw, index: int, complaint: str, outputs: int) -> CandidateFailed:
    """The failure of one output."""
    which = f"output {index} " if outputs > 1 else ""
    return CandidateFailed(Verdict.WRONG_RESULT, f"{which}on a draw of family {draw.family}: {complaint}")


def too_late(draw: Draw) -> CandidateFailed:
    """The failure of an output that was right in the end, but not when the clock stopped."""
    reason = f"an output on a draw of family {draw.family} was not there yet when the runner said it was done"
    return CandidateFailed(Verdict.WRONG_RESULT, reason)


def too_unstable(job: Job, share: float) -> ProblemError:
    """The refusal of a problem whose reference is no measure."""
    return ProblemError(
        f"problem {job.problem}: the reference's own {job.precision} result is off by more than 1% from fp64 on "
        f"{100 * share:.0f}% of its elements (random, or numerically unstable); it cannot judge"
    )


class Pool:
    """Prepared batches on the CPU; a process sees each input at most once."""

    def __init__(
        self,
        draws: Sequence[Draw],
        surprises: Sequence[Sequence[Draw]],
        calls: int,
        renew: Callable[[], Sequence[Draw]] | None = None,
    ) -> None:
        """`surprises`: batches of the families that are not timed; one of each family is kept for the end. `renew`:
        where each process after the first gets its draws, so that what one could tell the next is of no use."""
        last = {batch[0].family: batch for batch in surprises}
        self._exam = list(last.values())
        self._surprises = [batch for batch in surprises if batch is not last[batch[0].family]]
        self._draws, self._calls = list(draws), calls
        self._renew, self._is_new = renew, True

    def batches(self, order: random.Random) -> Iterator[tuple[Sequence[Draw], bool]]:
        """All batches in a new order, for one process, and whether their times count.

        Before any round a surprise is as likely as before any other: whoever is careful only where it expects to be
        examined is caught. It ends when a new process is needed, which is also when a surprise is due and none is left.
        """
        if self._renew is not None and not self._is_new:
            self._draws = list(self._renew())
        self._is_new = False
        order.shuffle(self._draws)
        order.shuffle(self._surprises)
        left = iter(self._surprises)
        for first in range(0, len(self._draws) - self._calls + 1, self._calls):
            if self._surprises and order.random() < SURPRISE_SHARE:
                surprise = next(left, None)
                if surprise is None:
                    return
                yield surprise[: self._calls], False
            yield self._draws[first : first + self._calls], True

    def exam(self) -> Iterator[Sequence[Draw]]:
        """After the last timed round, which nobody can know to be the last: a batch of each other family."""
        for batch in self._exam:
            yield batch[: self._calls]

    def adapt(self, window_ms: float, *, is_last: bool) -> bool:
        """Batches are small here: nothing to change for a slow or a fast candidate."""
        return False

    @property
    def rounds(self) -> int:
        """Batches that one process can be given."""
        return len(self._draws) // self._calls
