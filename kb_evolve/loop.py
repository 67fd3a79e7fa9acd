"""The loop of a search: ask, propose, build, measure, tell.

Everything is written before it is acted on: an attempt before its mutator runs, a candidate before
its build, an evaluation before the population hears of it. So a killed process loses only what was in
flight, and resuming is telling the stored history to a new population.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fitness.evaluation import Evaluation, Job, JudgeError, Verdict
from islands.candidate import Candidate, Evaluated, Ticket
from islands.population import Population
from islands.run import Run
from islands.store import Store
from kb_evolve.budget import Budget
from kb_evolve.config import Config
from kb_evolve.executors import Pools
from kb_evolve.judging import Bench, evaluation_key, make_job
from kb_evolve.known import Known
from kb_evolve.live import Progress
from kb_evolve.pipeline import Pipeline, Work
from kb_evolve.stop import Stop
from kb_evolve.thinking import Thought, think
from mutators.choose import Chooser
from mutators.proposal import Proposal
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


class Loop:
    """One process's part of a run, from its first ask or its resumption to its stop."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.run, self.config, self.store = parts.run, parts.config, parts.store
        self.population, self.budget = parts.population, parts.budget
        self.pipeline = Pipeline(parts.workbench, parts.pools, parts.costs)
        self.thinking: dict[Future[Thought], Ticket] = {}
        self.settled: dict[int, Work] = {}
        self.known = Known()
        self.verdicts: Counter[str] = Counter()
        self.here: tuple[str, str] | None = None
        """judge_sha256 and device_name of what this process measured."""
        self.barren = 0
        self.next_number = 0

    # -- resume ---------------------------------------------------------------------------------

    def resume(self) -> None:
        """Tells the stored history to the population and queues what was recorded but not judged."""
        pending = self.store.pending(self.run.id)
        for evaluated in self.store.history(self.run.id):
            self.known.add(evaluated.candidate)
            self._remember(evaluated)
        for candidate in pending:
            self.known.add(candidate)
        attempts = self.store.attempts(self.run.id)
        self._close_lost(attempts)
        self.budget.attempts = len(attempts)
        self.next_number = self.store.next_number(self.run.id)
        for candidate in sorted(pending, key=lambda candidate: candidate.number):
            self._submit(candidate)

    def plant(self, source: str) -> None:
        """Gives every island that has none its first candidate: the same source, numbered first."""
        for seed in self.population.seed_candidates(source, self.config.run.backend):
            if seed.number not in self.known.numbers:
                self._record(seed)
                self._submit(seed)
        self.next_number = max(self.next_number, self.config.population.islands)

    def _close_lost(self, attempts: list[Any]) -> None:
        for attempt in attempts:
            if attempt.outcome is None:
                self.store.close_attempt(self.run.id, attempt.number, "lost", reason="the process ended during it")

    # -- the loop -------------------------------------------------------------------------------

    def drive(self) -> tuple[StopReason, str]:
        """Searches until nothing is left to do: why it stopped, as one word and as a sentence.

        Raises JudgeError when the judge fails twice on one candidate; everything told stays told.
        """
        try:
            while True:
                self._fill()
                if (end := self._end()) is not None:
                    return end
                self._turn(TICK_S)
        finally:
            self._abandon()

    def _fill(self) -> None:
        window = self.config.judge.builders + 1 + self.config.run.thinkers
        while not self.parts.stop.requested and self._in_flight() < window and self._may_ask():
            self._ask()

    def _may_ask(self) -> bool:
        seeds_told = self.population.best() is not None and not self._seeds_in_flight()
        patience = BUSY_PATIENCE if self._in_flight() else self.config.run.patience_attempts
        return seeds_told and self.barren < patience and not self.budget.exhausted(self._in_flight())

    def _in_flight(self) -> int:
        return len(self.thinking) + len(self.pipeline.futures) + len(self.settled)

    def _seeds_in_flight(self) -> bool:
        return any(work.candidate.generation == 0 for work in self.pipeline.works())

    def _end(self) -> tuple[StopReason, str] | None:
        if self.parts.stop.requested:
            self._finish()
            return "interrupted", "stopped by you; the same command goes on from here"
        if self._in_flight():
            return None
        if self.population.best() is None:
            return "seed_failed", self._why_no_seed()
        if reason := self.budget.exhausted():
            return "budget", reason
        return "exhausted", (
            f"{self.barren} attempts in a row gave no new program: what the mutators can reach is searched"
        )

    def _why_no_seed(self) -> str:
        found = next(iter(self.known.evaluations.values()))
        return f"the first kernel is not correct ({found.verdict}): {found.reason}"

    def _turn(self, timeout_s: float) -> None:
        """Waits for something to be done, at most `timeout_s`, and deals with all that is."""
        done, _ = wait([*self.thinking, *self.pipeline.futures], timeout_s, FIRST_COMPLETED)
        for future in done:
            if future in self.thinking:
                self._accept(self.thinking.pop(future), future.result())
            elif (work := self.pipeline.advance(future)) is not None:
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

    def _abandon(self) -> None:
        for future, ticket in self.thinking.items():
            future.cancel()
            self.store.close_attempt(self.run.id, ticket.number, "lost", reason="the run stopped during it")
        self.thinking.clear()

    # -- ask and propose ------------------------------------------------------------------------

    def _ask(self) -> None:
        ticket = self.population.ask(self.next_number)
        mutators = self.parts.chooser.order(ticket)
        self.store.open_attempt(
            self.run.id, ticket.number, ticket.island, mutators[0].name, (ticket.parent.candidate.id,)
        )
        self.next_number += 1
        self.budget.attempts += 1
        known_as = partial(self.known.name_of, ticket.island)
        future = self.parts.pools.thinking.submit(think, mutators, ticket, known_as)
        if future.done():
            self._accept(ticket, future.result())
        else:
            self.thinking[future] = ticket

    def _accept(self, ticket: Ticket, thought: Thought) -> None:
        """Closes the attempt; a new program becomes a candidate on its way to the judge."""
        proposal = thought.proposal
        if proposal is None or proposal.source is None:
            return self._close_barren(ticket, thought, thought.outcome, "; ".join(thought.reasons))
        if (known_id := self.known.name_of(ticket.island, proposal.source)) is not None:
            reason = f"{proposal.mutator} repeated candidate {known_id}, which came in meanwhile"
            return self._close_barren(ticket, thought, "duplicate", reason)
        candidate = self._candidate(ticket, proposal, proposal.source)
        with self.store.transaction():
            self._record(candidate)
            self._close(ticket, thought, "candidate", "")
        self.barren = 0
        return self._submit(candidate)

    def _candidate(self, ticket: Ticket, proposal: Proposal, source: str) -> Candidate:
        parent_ids = proposal.parent_ids or (ticket.parent.candidate.id,)
        return Candidate(
            id=f"{self.run.id}-{ticket.number:06d}",
            number=ticket.number,
            island=ticket.island,
            generation=1 + max(self.known.generations.get(parent_id, 0) for parent_id in parent_ids),
            backend=self.config.run.backend,
            source=source,
            parent_ids=parent_ids,
            mutator=proposal.mutator,
            rationale=proposal.rationale,
            details=proposal.details,
        )

    def _close_barren(self, ticket: Ticket, thought: Thought, outcome: str, reason: str) -> None:
        self.barren += 1
        self._close(ticket, thought, outcome, reason)

    def _close(self, ticket: Ticket, thought: Thought, outcome: str, reason: str) -> None:
        proposal = thought.proposal
        self.store.close_attempt(
            self.run.id,
            ticket.number,
            outcome,
            reason=reason,
            usage=thought.usage,
            details=proposal.details if proposal else None,
            mutator=proposal.mutator if proposal else None,
            rationale=proposal.rationale if proposal else "",
        )

    def _record(self, candidate: Candidate) -> None:
        self.store.add_candidate(self.run.id, candidate)
        self.known.add(candidate)

    # -- judge and tell -------------------------------------------------------------------------

    def _submit(self, candidate: Candidate) -> None:
        """Tells a candidate whose program is judged already, joins one in flight, else starts its build."""
        told = self.known.evaluations.get(candidate.source_sha256)
        if told is not None:
            return self._tell(candidate, told)
        for work in [*self.pipeline.works(), *self.settled.values()]:
            if work.candidate.source_sha256 == candidate.source_sha256:
                work.followers.append(candidate)
                return None
        if (stored := self._stored(candidate)) is not None:
            return self._tell(candidate, stored)
        return self.pipeline.start(Work(candidate, self._job(candidate)))

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
            number = min(self.settled)
            waiting = [work.candidate.number for work in self.pipeline.works()]
            if self.config.run.in_order and waiting and min(waiting) < number:
                return
            self._settle(self.settled.pop(number))
            if self.config.run.in_order:
                self._fill()

    def _settle(self, work: Work) -> None:
        evaluation = work.evaluation
        if evaluation is None:
            raise JudgeError(f"candidate {work.candidate.id} came back from the workbench without an evaluation")
        if work.first is None and work.candidate.generation > 0 and self._beats_best(evaluation):
            work.first = evaluation
            return self.pipeline.again(work)
        if work.candidate.generation == 0 and evaluation.verdict in UNTIMED:
            raise JudgeError(f"a search needs times, and the first kernel gets none here: {evaluation.reason}")
        if work.first is not None:
            self._record_duel(work, work.first, evaluation)
        self.budget.evaluations += 1
        if evaluation.is_correct:
            self.here = (evaluation.judge_sha256, evaluation.device_name)
        for candidate in (work.candidate, *work.followers):
            self._tell(candidate, evaluation)
        return None

    def _beats_best(self, evaluation: Evaluation) -> bool:
        best = self.population.best()
        if best is None or best.evaluation.speedup is None or evaluation.speedup is None:
            return False
        return evaluation.speedup > best.evaluation.speedup

    def _record_duel(self, work: Work, first: Evaluation, second: Evaluation) -> None:
        """A new best is measured twice; the first, lucky figure is kept as an event only."""
        self.store.add_event(
            self.run.id,
            "duel",
            {
                "candidate": work.candidate.id,
                "first_speedup": first.speedup,
                "first_kernel_ms": first.kernel_ms,
                "second_verdict": str(second.verdict),
                "second_speedup": second.speedup,
                "second_kernel_ms": second.kernel_ms,
            },
        )

    def _tell(self, candidate: Candidate, evaluation: Evaluation) -> None:
        self.store.add_evaluation(self.run.id, candidate.id, evaluation, self._key(candidate))
        self._remember(Evaluated(candidate, evaluation))
        self.barren = 0

    def _remember(self, evaluated: Evaluated) -> None:
        self.population.tell(evaluated)
        parent_ids = evaluated.candidate.parent_ids
        self.parts.chooser.tell(evaluated, self.known.told.get(parent_ids[0]) if parent_ids else None)
        self.known.told[evaluated.candidate.id] = evaluated.evaluation
        if evaluated.evaluation.verdict is not Verdict.NO_VERDICT:
            self.known.evaluations[evaluated.candidate.source_sha256] = evaluated.evaluation
        self.verdicts[str(evaluated.evaluation.verdict)] += 1

    def _key(self, candidate: Candidate) -> tuple[str, ...]:
        return evaluation_key(self._job(candidate), self.run.problem_sha256)

    def _job(self, candidate: Candidate) -> Job:
        best = self.population.best()
        incumbent_ms = best.evaluation.kernel_ms if best else None
        return make_job(self.parts.problem, candidate.source, self.config, incumbent_ms)

    def progress(self) -> Progress:
        """Where the run stands."""
        building, measuring, queued = self.pipeline.running()
        return Progress(
            run=self.run.name,
            problem=self.run.problem_id,
            evaluations=self.budget.evaluations,
            attempts=self.budget.attempts,
            elapsed_s=self.budget.elapsed_s,
            evaluations_limit=self.budget.limits.evaluations,
            eta_s=self.budget.eta_s(),
            best=self.population.best(),
            islands={island.number: island.best for island in self.population.islands() if island.best},
            verdicts=self.verdicts,
            thinking=len(self.thinking),
            building=building,
            measuring=measuring,
            queued=queued,
            stopping=self.parts.stop.requested,
        )
