"""Timed rounds: candidate and reference on the same fresh inputs, in random order, every output checked."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, cast

from fitness import timing
from fitness.calls import Call
from fitness.draws import Draw
from fitness.evaluation import JudgeError, Verdict
from fitness.process import CandidateFailed

if TYPE_CHECKING:
    import torch

    from fitness.calls import Runner
    from fitness.gpu.calls import GpuRunner
    from fitness.gpu.session import GpuSession
    from fitness.session import Session

FEWEST_ROUNDS = 10
PATIENCE = 8
"""This many times the session's `timed_s`, when so many rounds are dropped that FEWEST_ROUNDS are not in."""
SET_ASIDE_FOR = 3
"""So many times `timed_s` rounds with the usual reference are waited for; then those with a slow one count as well."""
MOST_TAKEN_OFF = 0.14
"""What an early "done" could gain, 0.2 ms of asking where the samples lie and 0.05 ms of a tail longer than most, stays
below 5% by this: a window costs 0.87 ms around its calls, so where all of it is taken off (from 6.2 ms on) the calls
took 5.3 ms or more."""
MOVED_SHARE, MOST_MOVED = 0.05, 12
"""A round is dropped when more than this part of the candidate's outputs lay where none of its call before lay: such
memory could be made ready between calls. With memory that is taken and given back in the same order each time, as torch
does, that happens in the first rounds of a process at most; a candidate that goes on with it is refused."""
MOVED = "outputs lay in other memory than those of the call before"
FOREIGN_LOAD = 0.15
"""A round is dropped when the reference stood in the run queue for this share of its window: not for the candidate's
waiting, which its own threads can cause, and so drop what is slow."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What timed rounds need of the judge."""

    quiet: Callable[[bool], None]
    """Makes builds on the same CPUs stand still, and lets them go on."""
    flush: torch.Tensor
    """As large as the last-level cache; touched before every call, so that all start alike."""
    disturbed: Callable[[], str]
    """Why the round that just ended must be dropped; empty when nothing speaks against it."""
    summary: Callable[[], dict[str, Any]] = dict
    """Features of the rounds since `quiet(True)`: clocks, temperature."""
    fixed_ms: float = 0.0
    """On a GPU, what a window of one call costs around the work itself, taking samples apart: messages, and the
    device's change from one process to the other. From a trusted problem of our own."""


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
    """All rounds in one process. On the CPU inputs may come to it again: only for baselines, which do not cheat."""
    is_checked: bool = True
    """Whether outputs must be right: a TF32 baseline is only timed."""
    is_whole: bool = False
    """Times are those of whole windows: for differences, in which what a window costs cancels."""
    is_paced: bool = False
    """On a GPU: each input of a batch is revealed only when the output before it is there."""
    has_exam: bool = True
    """Whether batches of the families that are not timed follow the last round."""


class Spared(Enum):
    """When a round does without its reference."""

    NEVER = auto()
    AFTERWARDS = auto()
    """When the candidate had the first turn: the oracle decides, and a candidate must not see before its call that this
    round is another than the rest."""
    ALWAYS = auto()


@dataclass(slots=True)
class Rounds:
    """Paired times [ms per call], and how many outputs were checked."""

    kernel_ms: list[float] = field(default_factory=list)
    reference_ms: list[float] = field(default_factory=list)
    reveals_ms: list[float] = field(default_factory=list)
    """How much longer writing the inputs took for the candidate than for the reference."""
    put_off_ms: list[float] = field(default_factory=list)
    """What of the candidate's times [ms per call] was work after its windows."""
    set_aside: list[tuple[float, float, float, float]] = field(default_factory=list)
    """The same four of rounds in which the reference was slower than it usually is."""
    disturbances: Counter[str] = field(default_factory=Counter)
    """Why rounds were dropped."""
    draws: int = 0
    calls: int = 0
    """Calls of the last window."""

    def add(self, kernel_ms: float, reference_ms: float, reveal_ms: float, put_off_ms: float) -> None:
        """A round whose times count."""
        self.kernel_ms.append(kernel_ms)
        self.reference_ms.append(reference_ms)
        self.reveals_ms.append(reveal_ms)
        self.put_off_ms.append(put_off_ms)

    def refuse_moving(self) -> None:
        """Raises CandidateFailed when rounds are dropped again and again since the outputs' memory is new."""
        if (moved := self.disturbances[MOVED]) >= MOST_MOVED and moved > 2 * self.made:
            reason = f"{MOVED} in {moved} of {moved + self.made} rounds: take it from torch's allocator and keep none"
            raise CandidateFailed(Verdict.CONTRACT, reason)

    def take_back(self) -> None:
        """Lets what was set aside count after all."""
        for times in self.set_aside:
            self.add(*times)
        self.set_aside.clear()

    @property
    def kept(self) -> int:
        return len(self.kernel_ms)

    @property
    def made(self) -> int:
        """Kept or set aside."""
        return self.kept + len(self.set_aside)

    @property
    def dropped(self) -> int:
        return self.disturbances.total()

    def disturbed(self) -> str:
        """How many rounds were dropped, and the commonest reason."""
        reasons = "".join(f": {reason}" for reason, _ in self.disturbances.most_common(1))
        return f"{self.dropped} of {self.dropped + self.kept} rounds were disturbed{reasons}"


def paired(
    bench: Bench,
    session: Session | GpuSession,
    candidate: Callable[[], Runner | GpuRunner],
    is_copied: bool,
    plan: Plan,
) -> Rounds:
    """Rounds until `plan` or precision says stop.

    `candidate()` gives a new process: a process must see each input at most once, or it could remember. Both sides get
    new processes after so many rounds as the session says, since a process is fast or slow by where its memory happens
    to lie, which no number of rounds in it shows. Rounds before the first whose time counts do without a reference that
    is warm already, and are then not compared. Raises CandidateFailed at the first wrong output of any other.
    """
    feed = session.feed(is_copied, plan.calls, fresh=plan.fresh)
    warm = min(session.warm_rounds, feed.rounds - 1)
    rounds, order = Rounds(), random.SystemRandom()
    series = _Series(bench, session, is_copied, plan, rounds, order, candidate(), session.timed_reference(is_copied))
    started = time.monotonic()
    bench.quiet(True)
    try:
        while True:
            made_before = rounds.made
            for index, (batch, is_timed) in enumerate(feed.batches(order)):
                if index < warm:
                    window_ms = series.warm_up(batch)
                    is_new = rounds.made == 0 and not plan.is_paced
                    if is_new and feed.adapt(window_ms, is_last=index + 1 == warm):
                        warm = index + 2
                    continue
                if not is_timed:
                    series.surprise(batch)
                    continue
                series.timed(batch)
                if _enough(rounds, plan, session, time.monotonic() - started):
                    if plan.is_checked and plan.has_exam:
                        for last in feed.exam():
                            series.surprise(last)
                    return rounds
                if not plan.keep_process and rounds.made - made_before >= session.rounds_per_process:
                    break
            if not plan.keep_process:
                session.give_back(series.reference)
                series.runner, series.reference = candidate(), session.timed_reference(is_copied)
                warm = min(session.warm_again, feed.rounds - 1)
    finally:
        bench.quiet(False)
        session.give_back(series.reference)


@dataclass(slots=True)
class _Series:
    """The rounds of one candidate, one by one."""

    bench: Bench
    session: Session | GpuSession
    is_copied: bool
    plan: Plan
    rounds: Rounds
    order: random.Random
    runner: Runner | GpuRunner
    reference: Runner | GpuRunner

    def warm_up(self, batch: Sequence[Draw]) -> float:
        """A round whose time does not count; the candidate's window [ms]."""
        return self._play(batch, Spared.ALWAYS if self.reference.is_warm(len(batch)) else Spared.NEVER)[0].window_ms

    def surprise(self, batch: Sequence[Draw]) -> None:
        """A round of a family that is not timed."""
        self._play(batch, Spared.AFTERWARDS)

    def timed(self, batch: Sequence[Draw]) -> None:
        """A round whose time counts, unless it was disturbed."""
        theirs, ours = self._play(batch, Spared.NEVER)
        assert ours is not None
        rounds, count = self.rounds, len(batch)
        rounds.calls = count
        reason = "other load on the machine" if ours.waited_share > FOREIGN_LOAD else self.bench.disturbed()
        if theirs.moved_share > MOVED_SHARE:
            reason = MOVED
        if reason:
            rounds.disturbances[reason] += 1
            rounds.refuse_moving()
            return
        tail_ms = min(theirs.tail_ms, self.reference.usual_tail_ms(count))
        put_off_ms = _put_off_ms(theirs, ours, self.session.put_off_share) / count
        kernel_ms = self._work_ms(theirs, tail_ms) / count + put_off_ms
        reference_ms = self._work_ms(ours, ours.tail_ms) / count
        times = kernel_ms, reference_ms, theirs.reveal_ms - ours.reveal_ms, put_off_ms
        if self._is_slow(reference_ms):
            rounds.set_aside.append(times)
        else:
            rounds.add(*times)

    def _is_slow(self, reference_ms: float) -> bool:
        """Whether the reference took longer than it usually does, where that is known. Takes note of its time, of few
        rounds of each candidate: none decides what is usual."""
        usual = self.session.usual
        if usual is None or self.plan.is_whole:
            return False
        if self.rounds.made < FEWEST_ROUNDS:
            usual.add(reference_ms)
        return usual.is_slow(reference_ms)

    def _work_ms(self, call: Call, tail_ms: float) -> float:
        """The part of a window that the work took; all of it for plans of whole windows."""
        if self.plan.is_whole:
            return call.window_ms
        fixed_ms = self.session.fixed_ms if self.plan.calls > 1 else self.bench.fixed_ms
        return _share(call.window_ms, fixed_ms + tail_ms)

    def _play(self, batch: Sequence[Draw], spared: Spared) -> tuple[Call, Call | None]:
        """The calls, compared unless the reference was spared for good."""
        sides = [self.runner, self.reference]
        theirs, ours = _round(self.bench, sides, batch, self.order, spared, is_paced=self.plan.is_paced)
        if self.plan.is_checked and spared is not Spared.ALWAYS:
            self.session.compare(theirs, ours, batch, self.is_copied)
            self.rounds.draws += len(batch)
        theirs = replace(theirs, release_ms=theirs.release_ms + self.runner.let_go())
        if ours is not None:
            with _as_reference(self.reference):
                ours = replace(ours, release_ms=ours.release_ms + self.reference.let_go())
        return theirs, ours


def _round(
    bench: Bench,
    sides: Sequence[Runner | GpuRunner],
    batch: Sequence[Draw],
    order: random.Random,
    spared: Spared,
    *,
    is_paced: bool = False,
) -> tuple[Call, Call | None]:
    """The calls of candidate and reference, whichever went first; None where the reference was spared."""
    turns = order.sample(range(2), 2) if spared is not Spared.ALWAYS else [0]
    if spared is Spared.AFTERWARDS and turns[0] == 0:
        turns = [0]
    inputs = [draw.inputs for draw in batch]
    calls: dict[int, Call] = {}
    for side in turns:
        with _as_reference(sides[side]) if side == 1 else nullcontext():
            if is_paced:
                calls[side] = cast("GpuRunner", sides[side]).paced(inputs, bench.flush)
            else:
                calls[side] = sides[side].call(inputs, bench.flush)
    return calls[0], calls.get(1)


@contextmanager
def _as_reference(reference: Runner | GpuRunner) -> Iterator[None]:
    """Its failure is not the candidate's, unless it is a broken contract: it breaks none by itself."""
    try:
        yield
    except CandidateFailed as failure:
        reference.close()  # whatever was done to it, the next candidate gets another
        if failure.verdict is Verdict.CONTRACT:
            raise
        raise JudgeError(f"the reference failed between two calls of the candidate: {failure.reason}") from failure


def _put_off_ms(theirs: Call, ours: Call, least: float) -> float:
    """What the candidate did after the window beyond what the reference did, unless it is less than this share of the
    window: it belongs to the call, such as the zeros for the next one."""
    longer_ms = theirs.release_ms - ours.release_ms
    return longer_ms if longer_ms > least * theirs.window_ms else 0.0


def _share(window_ms: float, fixed_ms: float) -> float:
    """The part of a window that the work took. What is taken off is never more than what was measured without the
    candidate, nor than MOST_TAKEN_OFF of the window."""
    return window_ms - min(fixed_ms, MOST_TAKEN_OFF * window_ms)


def _enough(rounds: Rounds, plan: Plan, session: Session | GpuSession, spent_s: float) -> bool:
    fewest = min(FEWEST_ROUNDS, session.looks[0])
    if rounds.kept < fewest and spent_s > SET_ASIDE_FOR * session.timed_s:
        rounds.take_back()
    if rounds.kept >= plan.most_rounds:
        return True
    if spent_s > session.timed_s and (rounds.kept >= fewest or spent_s > PATIENCE * session.timed_s):
        return True
    return rounds.kept > 0 and timing.may_stop(
        rounds.kernel_ms, rounds.reference_ms, plan.incumbent_ms, session.looks, session.precision
    )
