"""The loop's part in who is the elite: second measurements, written down before and after they are made.

The population decides (islands/duels.py); this has measured what it wants and keeps the record (islands/bouts.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fitness.evaluation import Evaluation, Job
from islands.bouts import BOUT, DETHRONED, FOUGHT_OUT, OPENED, bout_fields, duel_fields, opened, opened_fields
from islands.candidate import Candidate, Evaluated
from islands.duels import DUEL, FOUGHT, NO_WORD, UNDECIDED
from islands.run import Event
from kb_evolve.known import Known
from kb_evolve.pipeline import Pipeline, Work

if TYPE_CHECKING:
    from kb_evolve.loop import Parts


class Duelling:
    """The duels and re-duels of one process's part of a run."""

    def __init__(self, parts: Parts, pipeline: Pipeline, known: Known, job: Callable[[Candidate], Job]) -> None:
        self.parts, self.pipeline, self.known, self._job = parts, pipeline, known, job
        self.run_id, self.store, self.population = parts.run.id, parts.store, parts.population
        self.firsts: dict[str, Evaluation] = {}
        """First measurements of candidates whose duel a killed process did not end."""
        self._falls = 0
        """How many ends of reigns are on record."""

    def resume(self, events: Iterable[Event]) -> None:
        """Takes up what was open; the population must have been told its history."""
        events = list(events)
        self.firsts = opened(events)
        self._falls = sum(event.kind == DETHRONED for event in events)
        self.record_falls()

    def take_up(self, candidate: Candidate) -> bool:
        """Goes on with the duel of a candidate whose first measurement is on record; says whether there is one."""
        first = self.firsts.pop(candidate.id, None)
        if first is not None:
            self.pipeline.again(Work(candidate, self._job(candidate), first=first))
        return first is not None

    def open(self, work: Work, first: Evaluation) -> None:
        """Keeps the first figure of a would-be elite and has it measured afresh; only what that finds is told."""
        best = self.population.best()
        fields = opened_fields(work.candidate.id, best.candidate.id if best else "", first)
        self.store.add_event(self.run_id, OPENED, fields)
        work.first = first
        self.pipeline.again(work)

    def end(self, work: Work, first: Evaluation, second: Evaluation) -> Evaluation:
        """What is told after a duel: the second figure, or the first, which then wins nothing, if that gave none."""
        self.store.add_event(self.run_id, FOUGHT_OUT, duel_fields(work.candidate.id, first, second))
        told, duel = (first, UNDECIDED) if second.verdict in NO_WORD else (second, FOUGHT)
        return dataclasses.replace(told, features={**told.features, DUEL: duel})

    def is_on(self) -> bool:
        """Whether a told candidate is being measured afresh."""
        return any(work.wanted is not None for work in self.pipeline.works())

    def begin(self) -> None:
        """Starts the fresh measurement that the population wants, one at a time, while there is time."""
        if self.is_on() or self.parts.stop.requested or self.parts.budget.is_time_up():
            return
        if (wanted := self.population.wanted()) is not None:
            candidate = wanted.evaluated.candidate
            self.pipeline.again(Work(candidate, self._job(candidate), wanted=wanted))

    def settle(self, work: Work) -> None:
        """Writes down what a fresh measurement found and tells the population."""
        assert work.wanted is not None and work.evaluation is not None
        self.store.add_event(self.run_id, BOUT, bout_fields(work.wanted, work.evaluation, self.population.told))
        self.amend(Evaluated(work.candidate, work.evaluation))
        self.record_falls()

    def amend(self, evaluated: Evaluated) -> None:
        """Tells the population a fresh measurement that is on record."""
        self.known.amend(self.population.retell(evaluated))

    def record_falls(self) -> None:
        """Writes who lost the first place; a resume adds what a kill kept from being written."""
        for fall in self.population.falls()[self._falls :]:
            self.store.add_event(self.run_id, DETHRONED, dataclasses.asdict(fall))
            self._falls += 1
