"""The loop of a search: ask, propose, build, measure, tell.

Everything is written before it is acted on: an attempt before its mutator runs, a candidate before
its build, an evaluation before the population hears of it. So a killed process loses only what was in
flight, and resuming is telling the stored history to a new population.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from typing import Literal

from fitness.evaluation import Evaluation, Job, JudgeError, Verdict
from islands.bouts import in_order
from islands.candidate import DUPLICATE_OF, Candidate, Evaluated
from islands.population import Population
from islands.run import Run
from islands.store import Store
from kb_evolve.asking import Asking
from kb_evolve.budget import Budget
from kb_evolve.config import Config
from kb_evolve.duelling import Duelling
from kb_evolve.executors import Pools
from kb_evolve.judging import Bench, evaluation_key, make_job
from kb_evolve.known import BINARY, Known
from kb_evolve.live import Progress
from kb_evolve.pipeline import Pipeline, Work
from kb_evolve.progress import progress_of
from kb_evolve.seeding.seed import ORIGIN, Gathered, candidates
from kb_evolve.seeding.told import why_no_kernel
from kb_evolve.stop import Stop
from mutators.choose import Chooser
from mutators.embedding import Embeddings
from mutators.insights import Insights
from mutators.proposal import Mutator
from problems.problem import Problem
from problems.roofline import Costs

log = logging.getLogger(__name__)

StopReason = Literal["budget", "exhausted", "interrupted", "seed_failed"]

UNTIMED = (Verdict.NO_VERDICT, Verdict.VERIFIED)
"""Verdicts that are no fault of the candidate's and no use to a search."""
TICK_S = 0.2
BUSY_PATIENCE = 4
"""Attempts in a row without a new program after which the loop waits for what is in flight: mutators repeat
themselves until they learn what became of it."""
FIRST_ATTEMPTS = 30
"""Questions for a first kernel before the run gives up."""
GRACE_S = 5.0
"""How long a first Ctrl-C waits for the measurement in flight."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a loop works with; the caller opens and closes them."""

    run: Run
    problem: Problem
    config: Config
    store: Store
    population: Population
    chooser: Chooser
    workbench: Bench
    pools: Pools
    budget: Budget
    stop: Stop
    show: Callable[[Progress], None]
    costs: Costs | None = None
    """What the problem costs at least; None where it was not traced."""
    thinkers: int = 1
    """Proposals made at once."""
    seeders: tuple[Mutator, ...] = ()
    """What makes first kernels where none is given."""
    insights: Insights | None = None
    """Lessons for models; None where none is asked."""
    embeddings: Embeddings | None = None
    """What tells whether two programs mean the same; None where no model for it is named."""
    paid_out: Callable[[], str] = str
    """Why models may be asked no more, in words; empty while they may."""
    usd: Callable[[], float | None] = lambda: None
    """What models cost so far; None where none is asked."""


class Loop:
    """One process's part of a run, from its first ask or its resumption to its stop."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.run, self.config, self.store = parts.run, parts.config, parts.store
        self.population, self.budget = parts.population, parts.budget
        twin_of = None if parts.config.run.in_order else self._twin_of
        self.pipeline = Pipeline(parts.workbench, parts.pools, parts.costs, twin_of)
        self.settled: dict[int, Work | None] = {}
        """What is to be told; None for a ticket that gave nothing, in order."""
        self.known = Known(parts.store.find_candidate, parts.store.told_of)
        self.duels = Duelling(parts, self.pipeline, self.known, self._job)
        self.asking = Asking(parts, self.known, submit=self._submit, settle=self._settle_barren, measured=self._numbers)
        self.verdicts: Counter[str] = Counter()
        self.here: tuple[str, str] | None = None
        """judge_sha256 and device_name of what this process measured."""
        self.asks_first = False
        """Whether there is no first kernel but those that are given as seeds or written by models."""
        self.first: Evaluated | None = None
        """The first correct one that was told before this process resumed the run."""
        self.failed: Evaluated | None = None
        """The newest one that is not correct."""
        self.barren = 0

    def resume(self) -> None:
        """Tells the stored history to the population and queues what was recorded but not judged."""
        pending = self.store.pending(self.run.id)
        events = self.store.events(self.run.id)
        for evaluated, is_again in in_order(self.store.stream(self.run.id), events):
            if is_again:
                self.duels.amend(evaluated)
                continue
            if self.first is None and evaluated.evaluation.is_correct:
                self.first = evaluated
            self.known.add(evaluated.candidate)
            self.known.add_build(evaluated.candidate, evaluated.evaluation.features.get(BINARY, ""))
            self._remember(evaluated)
        self.duels.resume(events)
        for candidate in pending:
            self.known.add(candidate)
        self.asking.resume()
        for candidate in sorted(pending, key=lambda candidate: candidate.number):
            self._submit(candidate)

    def plant(self, source: str | None, *, spare: int | None = None) -> None:
        """Gives every island that has none its first candidate: the same source, numbered first; island `spare` has it.

        Without a source first kernels are taken from seeds or asked for, and the first one that is correct is planted.
        """
        self.asks_first = self.asks_first or source is None
        if source is None and self.first is not None:
            source, spare = self.first.candidate.source, self.first.candidate.island
        self.asking.next_number = max(self.asking.next_number, self.config.population.islands)
        for seed in self.population.seed_candidates(source, self.config.run.backend) if source else ():
            if seed.number not in self.known.numbers and seed.island != spare:
                self.asking.record(seed)
                self._submit(seed)

    def sow(self, gathered: Gathered) -> None:
        """Records what `--seeds` gave, and what was left out, all at once, and submits it to the judge."""
        run, islands = self.config.run, self.config.population.islands
        seeds = candidates(gathered.seeds, self.run.id, run.backend, islands)
        with self.store.transaction():
            for seed in seeds:
                self.asking.record(seed)
            fields = {"seeds": list(run.seeds), "taken": len(seeds), "left_out": list(gathered.left_out)}
            self.store.add_event(self.run.id, "seeded", fields)
        self.asking.next_number = max(self.asking.next_number, islands + len(seeds))
        for seed in seeds:
            self._submit(seed)

    def drive(self) -> tuple[StopReason, str]:
        """Searches until nothing is left to do: why it stopped, as one word and as a sentence.

        Raises JudgeError when the judge fails twice on one candidate; everything told stays told.
        """
        try:
            while True:
                self.duels.begin()
                self._fill()
                if (end := self._end()) is not None:
                    return end
                self._turn(TICK_S)
        finally:
            self.asking.abandon()

    def _fill(self) -> None:
        ordered, unordered = self.config.run.lag, self.config.judge.builders + 1 + self.parts.thinkers
        window = ordered if self.config.run.in_order else unordered
        if self.config.run.in_order and self.duels.is_on():
            return
        if self.population.best() is None:
            window = min(window, max(2, self.config.population.islands))  # what failed is to be repaired
        while not self.parts.stop.requested and self._in_flight() < window and self._may_ask():
            ask = self.asking.ask_first if self.population.best() is None else self.asking.ask
            if not ask():
                return

    def _may_ask(self) -> bool:
        patience = BUSY_PATIENCE if self._in_flight() else self.config.run.patience_attempts
        has_room = self.barren < patience and not self.budget.exhausted(self._in_flight())
        if self.population.best() is None:
            is_sown = any(ORIGIN in work.candidate.details for work in self._works())
            has_room = has_room and self.asks_first and self.budget.attempts < FIRST_ATTEMPTS
            return has_room and not is_sown and bool(self.asking.payable(self.parts.seeders))
        return has_room and not self._seeds_in_flight() and bool(self.asking.payable(self.parts.chooser.mutators))

    def _is_awaited(self, number: int) -> bool:
        """Whether a ticket before `number` is still on its way."""
        return min([*self.asking.numbers(), *self._numbers()]) < number

    def _in_flight(self) -> int:
        return len(self.asking.numbers()) + len(self.pipeline.futures) + len(self.settled)

    def _seeds_in_flight(self) -> bool:
        return any(work.candidate.generation == 0 for work in self._works())

    def _end(self) -> tuple[StopReason, str] | None:
        if self.parts.stop.requested:
            self._finish()
            return "interrupted", "stopped by you; the same command goes on from here"
        if self.budget.is_time_up() and not self.pipeline.futures and self.asking.only_waits_for_people():
            waiting = len(self.asking.thinking)
            return (
                "budget",
                f"{self.budget.exhausted()}{f'; questions that wait for you: {waiting}' if waiting else ''}",
            )
        if self._in_flight():
            return None
        if self.population.best() is None:
            return "seed_failed", why_no_kernel(self.known.judged(), self.asks_first)
        if reason := self.budget.exhausted():
            return "budget", reason
        if not self.asking.payable(self.parts.chooser.mutators):
            return "budget", self.parts.paid_out()
        return "exhausted", (
            f"{self.barren} attempts in a row gave no new program: what the mutators can reach is searched"
        )

    def _turn(self, timeout_s: float) -> None:
        """Waits for something to be done, at most `timeout_s`, and deals with all that is."""
        done, _ = wait([*self.asking.thinking, *self.pipeline.futures], timeout_s, FIRST_COMPLETED)
        self.asking.collect(done)
        for future in [future for future in self.pipeline.futures if future in done]:
            if (work := self.pipeline.advance(future)) is None:
                continue
            if work.wanted is not None:
                self.duels.settle(work)
            else:
                self.settled[work.candidate.number] = work
        self._tell_settled()
        self.parts.show(self.progress())

    def _finish(self) -> None:
        """Keeps the measurement that is running if it ends within GRACE_S; a resume does the rest."""
        self.pipeline.cancel_queued()
        deadline_s = time.monotonic() + GRACE_S
        with contextlib.suppress(JudgeError):
            while self.pipeline.futures and (left_s := deadline_s - time.monotonic()) > 0:
                self._turn(min(left_s, TICK_S))

    def _submit(self, candidate: Candidate) -> None:
        """Tells a candidate whose program is judged already, joins one in flight, else starts its build."""
        if not self.config.run.in_order:
            self.barren = 0
        told = self.known.evaluation_of(candidate.source_sha256) or self._stored(candidate)
        same = [work for work in self._works() if work.candidate.source_sha256 == candidate.source_sha256]
        if self.duels.take_up(candidate):
            return
        if self.config.run.in_order and (told is not None or same):
            self.settled[candidate.number] = Work(candidate, self._job(candidate), evaluation=told, is_known=True)
        elif told is not None:
            self._tell_known(Work(candidate, self._job(candidate)), told)
        elif same:
            same[0].followers.append(candidate)
        else:
            self.pipeline.start(Work(candidate, self._job(candidate)))

    def _settle_barren(self, number: int) -> None:
        """A ticket gave no program: counted at once, or in its turn."""
        if self.config.run.in_order:
            self.settled[number] = None
        else:
            self.barren += 1

    def _numbers(self) -> list[int]:
        """Tickets whose programs are on their way to being told, and those that gave none and wait for their turn."""
        return [*self.settled, *(work.candidate.number for work in self.pipeline.works() if work.wanted is None)]

    def _works(self) -> list[Work]:
        works = [*self.pipeline.works(), *self.settled.values()]
        return [work for work in works if work is not None and work.wanted is None]

    def _stored(self, candidate: Candidate) -> Evaluation | None:
        """What another run of this database found, if by this judge on this device.

        Which judge this is, the first correct kernel tells: so a run's first kernel is always measured.
        """
        if self.here is None:
            return None
        judge_sha256, device_name = self.here
        stored = self.store.find_evaluation((*self._key(candidate), judge_sha256))
        return stored if stored is not None and stored.device_name == device_name else None

    def _tell_settled(self) -> None:
        """Tells what has its evaluation; in ticket order where the run asks for it."""
        while self.settled:
            self.duels.begin()
            number = min(self.settled)
            if self.config.run.in_order and (self.duels.is_on() or self._is_awaited(number)):
                return
            work = self.settled.pop(number)
            self.asking.count(number)
            if work is None:
                self.barren += 1
            else:
                self._settle(work)
            if self.config.run.in_order:
                self._fill()

    def _settle(self, work: Work) -> None:
        if work.is_known:
            return self._settle_known(work)
        evaluation = work.evaluation
        if evaluation is not None and DUPLICATE_OF in evaluation.features:
            return self._tell(work.candidate, evaluation)
        if evaluation is None:
            raise JudgeError(f"candidate {work.candidate.id} came back from the workbench without an evaluation")
        if work.first is None and self.population.is_worth_a_duel(evaluation):
            return self.duels.open(work, evaluation)
        is_seed = ORIGIN in work.candidate.details
        if work.candidate.generation == 0 and evaluation.verdict in UNTIMED and not is_seed:
            raise JudgeError(f"a search needs times, and the first kernel gets none here: {evaluation.reason}")
        if work.first is not None:
            evaluation = self.duels.end(work, work.first, evaluation)
        self.budget.evaluations += 1
        if evaluation.is_correct:
            self.here = (evaluation.judge_sha256, evaluation.device_name)
        is_first = self.population.best() is None
        for candidate in (work.candidate, *work.followers):
            self._tell(candidate, evaluation)
        if self.asks_first and is_first and self.population.best() is not None:
            self.plant(work.candidate.source, spare=work.candidate.island)
        return None

    def _settle_known(self, work: Work) -> None:
        """In order: tells what an earlier candidate of the same program was told; measures if that was no verdict."""
        told = self.known.evaluation_of(work.candidate.source_sha256) or work.evaluation
        if told is not None:
            return self._tell_known(Work(work.candidate, work.job), told)
        return self.pipeline.start(Work(work.candidate, work.job))

    def _tell_known(self, work: Work, told: Evaluation) -> None:
        """Tells what is known of a program; what another run measured once may need a duel in this one."""
        if self.population.is_worth_a_duel(told):
            self.duels.open(work, told)
        else:
            self._tell(work.candidate, told)

    def _twin_of(self, candidate: Candidate, binary_sha256: str) -> Evaluation | None:
        """What a candidate of the same compiled program was told, as an evaluation of this one; remembers it if new."""
        island, source = candidate.island, candidate.source
        twin = self.known.name_of_binary(island, source, binary_sha256)
        twin = twin or self.known.name_of_binary(None, source, binary_sha256)
        member = self.population.find(twin) if twin else None
        if member is None or member.evaluation.verdict is Verdict.NO_VERDICT:
            self.known.add_build(candidate, binary_sha256)
            return None
        told = member.evaluation
        features = {**told.features, BINARY: binary_sha256, DUPLICATE_OF: twin}
        return dataclasses.replace(told, source_sha256=candidate.source_sha256, features=features)

    def _tell(self, candidate: Candidate, evaluation: Evaluation) -> None:
        self.store.add_evaluation(self.run.id, candidate.id, evaluation, self._key(candidate))
        self._remember(Evaluated(candidate, evaluation))
        self.duels.record_falls()
        self.barren = 0

    def _remember(self, evaluated: Evaluated) -> None:
        self.population.tell(evaluated)
        parent_ids = evaluated.candidate.parent_ids
        member = self.population.find(parent_ids[0]) if parent_ids else None
        parent = member.evaluation if member is not None else None
        if DUPLICATE_OF not in evaluated.evaluation.features:
            self.parts.chooser.tell(evaluated, parent)
            if self.parts.insights is not None:
                self.parts.insights.tell(evaluated, parent)
        self.known.add_told(evaluated.candidate, evaluated.evaluation)
        self.verdicts[str(evaluated.evaluation.verdict)] += 1
        self.failed = self.failed if evaluated.evaluation.is_correct else evaluated

    def _key(self, candidate: Candidate) -> tuple[str, ...]:
        return evaluation_key(self._job(candidate), self.run.problem_sha256)

    def _job(self, candidate: Candidate) -> Job:
        best = self.population.best()
        incumbent_ms = best.evaluation.kernel_ms if best else None
        return make_job(self.parts.problem, candidate.source, self.config, incumbent_ms)

    def progress(self) -> Progress:
        """Where the run stands."""
        return progress_of(self)
