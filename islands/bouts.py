"""Duels and re-duels on record: the events that hold them, and a run's history with what they found.

Kinds of events: `duel_opened` (a first measurement lies above the elite's; kept before the second is made), `duel`
(both figures; the second was told), `bout` (a told candidate was measured afresh) and `dethroned` (who, by whom, why).
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fitness.evaluation import Evaluation
from islands.candidate import Candidate, Evaluated
from islands.duels import Throne, Wanted
from islands.population import Population
from islands.run import Event

OPENED, FOUGHT_OUT, BOUT, DETHRONED = "duel_opened", "duel", "bout", "dethroned"

ELITE = "elite"
"""Feature that `standings` gives the elite of the run: True."""
FALLEN = "dethroned"
"""Feature that `standings` gives a former elite: why it lost its place."""


def opened_fields(candidate_id: str, holder_id: str, first: Evaluation) -> dict[str, Any]:
    """Of `duel_opened`."""
    return {"candidate": candidate_id, "holder": holder_id, "evaluation": dataclasses.asdict(first)}


def duel_fields(candidate_id: str, first: Evaluation, second: Evaluation) -> dict[str, Any]:
    """Of `duel`."""
    return {
        "candidate": candidate_id,
        "first_speedup": first.speedup,
        "first_kernel_ms": first.kernel_ms,
        "second_verdict": str(second.verdict),
        "second_speedup": second.speedup,
        "second_kernel_ms": second.kernel_ms,
    }


def bout_fields(wanted: Wanted, evaluation: Evaluation, told: int) -> dict[str, Any]:
    """Of `bout`; `told` counts the candidates told before it, which fixes its place in the history."""
    return {
        "candidate": wanted.evaluated.candidate.id,
        "role": wanted.role,
        "why": wanted.why,
        "after": told,
        "verdict": str(evaluation.verdict),
        "speedup": evaluation.speedup,
        "speedup_before": wanted.evaluated.evaluation.speedup,
        "evaluation": dataclasses.asdict(evaluation),
    }


def opened(events: Iterable[Event]) -> dict[str, Evaluation]:
    """First measurements on record, by candidate: those of candidates that are not told yet wait for their duel."""
    return {
        event.fields["candidate"]: Evaluation.from_json(event.fields["evaluation"])
        for event in events
        if event.kind == OPENED
    }


def in_order(history: Iterable[Evaluated], events: Iterable[Event]) -> Iterator[tuple[Evaluated, bool]]:
    """What a run's population was told, in order: candidates (False), and fresh measurements of told ones (True).

    Reads the history once, and keeps of it only what was measured again.
    """
    bouts: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.kind == BOUT:
            bouts[event.fields["after"]].append(event)
    fighters = {event.fields["candidate"] for several in bouts.values() for event in several}
    candidates: dict[str, Candidate] = {}
    for told, evaluated in enumerate(history, 1):
        yield evaluated, False
        if evaluated.candidate.id in fighters:
            candidates[evaluated.candidate.id] = evaluated.candidate
        for event in bouts.get(told, ()):
            found = Evaluation.from_json(event.fields["evaluation"])
            yield Evaluated(candidates[event.fields["candidate"]], found), True


def replay(population: Population, history: Iterable[Evaluated], events: Iterable[Event]) -> None:
    """Tells a new population a run's record."""
    for evaluated, is_again in in_order(history, events):
        if is_again:
            population.retell(evaluated)
        else:
            population.tell(evaluated)


@dataclass(frozen=True, slots=True)
class Record:
    """What a run's record says of its candidates: the estimates that count now, who is the elite, and who was."""

    elite_id: str
    """Empty while no candidate is correct."""
    estimates: dict[str, Evaluation]
    """By source_sha256: of programs that were measured again."""
    marks: dict[str, dict[str, Any]]
    """Features by candidate id: ELITE and FALLEN."""

    def of(self, one: Evaluated) -> Evaluated:
        """A told candidate with the estimate that counts now; the elite and the fallen are marked."""
        estimate, mark = self.estimates.get(one.evaluation.source_sha256), self.marks.get(one.candidate.id)
        if estimate is None and mark is None:
            return one
        known = estimate or one.evaluation
        return Evaluated(one.candidate, dataclasses.replace(known, features={**known.features, **(mark or {})}))


def record_of(throne: Throne, estimates: dict[str, Evaluation]) -> Record:
    """The record of a run whose history the throne was told; `estimates` are what `Throne.retell` returned."""
    marks: dict[str, dict[str, Any]] = {fall.candidate_id: {FALLEN: fall.reason} for fall in throne.falls}
    elite_id = throne.holder.evaluated.candidate.id if throne.holder is not None else ""
    if elite_id:
        marks[elite_id] = {ELITE: True}
    return Record(elite_id, estimates, marks)


def recorded(history: Iterable[Evaluated], events: Iterable[Event]) -> Record:
    """The record of a run, its history read once."""
    throne, told, estimates = Throne(0), 0, dict[str, Evaluation]()
    for evaluated, is_again in in_order(history, events):
        if is_again:
            amended = throne.retell(evaluated, told)
            estimates[amended.evaluation.source_sha256] = amended.evaluation
        else:
            throne.tell(evaluated, told)
            told += 1
    return record_of(throne, estimates)


def standings(history: Sequence[Evaluated], events: Iterable[Event]) -> list[Evaluated]:
    """The history, in the order told, with the estimates that count now; the elite and the fallen are marked."""
    record = recorded(history, events)
    return [record.of(one) for one in history]


def elite_of(history: Sequence[Evaluated], events: Iterable[Event]) -> Evaluated | None:
    """The elite of a run by its record, with the estimate that counts now; None while no candidate is correct."""
    return next((one for one in standings(history, events) if ELITE in one.evaluation.features), None)
