"""Timed rounds: candidate and reference on the same fresh inputs, in random order, every output checked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fitness import timing, verify
from fitness.calls import Call, CandidateFailed, Runner
from fitness.evaluation import Verdict
from fitness.session import Draw, Session

if TYPE_CHECKING:
    import torch

TIMED_S = 1.5
"""Timed rounds of one candidate stop after this long, once FEWEST_ROUNDS are in."""
FEWEST_ROUNDS = 10
WARM_ROUNDS = 3
"""Untimed rounds of every new process: heap, page tables and thread pools fill up in them."""
PATIENCE = 8
"""This many times TIMED_S, when so many rounds are dropped that FEWEST_ROUNDS are not in."""
FOREIGN_LOAD = 0.15
"""A round is dropped when the reference stood in the run queue for this share of its window."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What timed rounds need of the judge."""

    quiet: Callable[[bool], None]
    """Makes builds on the same CPUs stand still, and lets them go on."""
    flush: torch.Tensor
    """As large as the last-level cache; touched before every call, so that all start alike."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rounds of what."""

    calls: int
    """Inputs per round: more than one for kernels too short to time alone (tier T1)."""
    most_rounds: int = timing.LOOKS[-1]
    incumbent_ms: float | None = None
    fresh: bool = False
    """On inputs that were never used before."""
    keep_process: bool = False
    """Inputs may come again to the same process: for baselines, which do not cheat."""


@dataclass(slots=True)
class Rounds:
    """Paired times [ms per call], and how many outputs were checked."""

    kernel_ms: list[float] = field(default_factory=list)
    reference_ms: list[float] = field(default_factory=list)
    dropped: int = 0
    draws: int = 0

    @property
    def kept(self) -> int:
        return len(self.kernel_ms)


def paired(bench: Bench, session: Session, candidate: Callable[[], Runner], is_copied: bool, plan: Plan) -> Rounds:
    """Rounds until `plan` or precision says stop.

    `candidate()` gives a new process: a process must see each input at most once, or it could remember. Raises
    CandidateFailed at the first wrong output.
    """
    pool = list(session.pool(is_copied, fresh=plan.fresh))
    rounds, order = Rounds(), random.SystemRandom()
    runner, reference = candidate(), session.reference(is_copied)
    started = time.monotonic()
    bench.quiet(True)
    try:
        while True:
            order.shuffle(pool)
            batches = [pool[i : i + plan.calls] for i in range(0, len(pool) - plan.calls + 1, plan.calls)]
            warm = min(WARM_ROUNDS, len(batches) - 1)
            for batch in batches[:warm]:
                rounds.draws += len(batch)
                _round(bench, [runner, reference], batch, order)
            for batch in batches[warm:]:
                _keep(rounds, _round(bench, [runner, reference], batch, order), len(batch))
                if _enough(rounds, plan, time.monotonic() - started):
                    return rounds
            if not plan.keep_process:
                runner.close()
                runner = candidate()
    finally:
        bench.quiet(False)
        reference.close()
        reference.child.discard()


def check(call: Call, batch: list[Draw]) -> None:
    """Raises CandidateFailed unless every output of the call is right."""
    for outputs, draw in zip(call.outputs, batch, strict=True):
        for index, (actual, expected) in enumerate(zip(outputs, draw.expected, strict=True)):
            if not verify.is_right(actual, expected):
                which = f"output {index} " if len(outputs) > 1 else ""
                reason = f"{which}on a draw of family {draw.family}: {verify.complaint(actual, expected)}"
                raise CandidateFailed(Verdict.WRONG_RESULT, reason)


def _round(bench: Bench, sides: list[Runner], batch: list[Draw], order: random.Random) -> list[Call]:
    """The calls of candidate and reference, whichever went first."""
    turns = order.sample(range(2), 2)
    inputs = [draw.inputs for draw in batch]
    calls = {side: sides[side].call(inputs, bench.flush) for side in turns}
    check(calls[0], batch)
    return [calls[0], calls[1]]


def _keep(rounds: Rounds, calls: list[Call], count: int) -> None:
    theirs, ours = calls
    rounds.draws += count
    if ours.waited_share > FOREIGN_LOAD:
        rounds.dropped += 1
        return
    rounds.kernel_ms.append(theirs.window_ms / count)
    rounds.reference_ms.append(ours.window_ms / count)


def _enough(rounds: Rounds, plan: Plan, spent_s: float) -> bool:
    if rounds.kept >= plan.most_rounds:
        return True
    if spent_s > TIMED_S and (rounds.kept >= FEWEST_ROUNDS or spent_s > PATIENCE * TIMED_S):
        return True
    return rounds.kept > 0 and timing.may_stop(rounds.kernel_ms, rounds.reference_ms, plan.incumbent_ms)
