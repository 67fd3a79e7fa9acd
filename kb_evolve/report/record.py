"""What a report is made of: everything that a run recorded, read once, and what follows from telling it again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from islands.bouts import in_order, standings
from islands.candidate import Evaluated
from islands.features import Coordinates
from islands.population import Migration, Population, PopulationConfig
from islands.run import Attempt, Event, Run
from islands.turns import Spent
from kb_evolve.report.moments import is_moment

if TYPE_CHECKING:
    from islands.store import Store


@dataclass(frozen=True, slots=True)
class Reign:
    """A candidate that became the elite of the run."""

    number: int
    """Candidates told when it did, itself included: the evaluation's number."""
    candidate_id: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a population knows after it was told the run's history."""

    axes: tuple[str, ...]
    """Of the map of elites."""
    edges: dict[str, tuple[float, ...]]
    cells: dict[tuple[int, Coordinates], Evaluated]
    """Elite of each occupied cell, by island and coordinates."""
    migrations: tuple[Migration, ...]
    reigns: tuple[Reign, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A run as its report sees it."""

    run: Run
    history: Sequence[Evaluated]
    """In the order told, with the estimates that count now (islands.bouts.standings)."""
    told: Sequence[Evaluated]
    """The same with the figures that each was told first."""
    attempts: Sequence[Attempt]
    events: Sequence[Event]
    told_at: Sequence[str]
    """When each member of the history was told; empty where that is not known."""
    spent: Sequence[Spent]
    """What every reply and every failure of a model cost."""
    replayed: Replayed
    trouble: str = ""
    """Why telling the history again may not give what happened; empty when it does."""


def read_record(store: Store, run: Run) -> Record:
    """The run's record, read from its database."""
    return record_of(
        run,
        store.history(run.id),
        store.attempts(run.id),
        store.events(run.id),
        store.told_at(run.id),
        store.spent(run.id),
    )


def record_of(
    run: Run,
    history: Sequence[Evaluated],
    attempts: Sequence[Attempt] = (),
    events: Sequence[Event] = (),
    told_at: Sequence[str] = (),
    spent: Sequence[Spent] = (),
) -> Record:
    """The record of what was told, in order: `history` holds first figures, and `events` what was measured afresh.

    A run that writes while it is read may have told more since: only moments of the history's members are kept.
    """
    replayed, trouble = retold(run, history, events)
    known_at = told_at[: len(history)] if len(told_at) >= len(history) else ()
    if not all(map(is_moment, known_at)):
        known_at, trouble = (), trouble or "some of its moments are no times"
    standing = history
    with contextlib.suppress(ValueError, KeyError, TypeError):  # `retold` has said what is wrong
        standing = standings(history, events)
    return Record(run, standing, history, attempts, events, known_at, spent, replayed, trouble)


def retold(run: Run, history: Sequence[Evaluated], events: Sequence[Event]) -> tuple[Replayed, str]:
    """What a new population knows once it is told the history, and why that may not be all of it, if so."""
    config, trouble = population_config(run, history, events)
    population = Population(config, run.id, run.seed)
    reigns: list[Reign] = []
    try:
        for evaluated, is_again in in_order(history, events):
            if is_again:
                population.retell(evaluated)
            else:
                population.tell(evaluated)
            _note_reign(reigns, population)
    except (ValueError, KeyError, TypeError) as error:
        trouble = f"it ends after {population.told} of {len(history)} candidates ({type(error).__name__}: {error})"
    cells, moves = population.cells, tuple(population.migrations)
    return Replayed(config.axes, dict(config.edges), cells, moves, tuple(reigns)), trouble


def population_config(run: Run, history: Iterable[Evaluated], events: Iterable[Event]) -> tuple[PopulationConfig, str]:
    """How the run selected in its last part, and what of that this version does not know.

    For a run without a stored configuration, the usual one with its islands.
    """
    from kb_evolve.config import ConfigError, merge, resolve

    started = [event.fields.get("config") or {} for event in events if event.kind == "started"]
    layer = merge(*(_population_layer(config) for config in (run.config, *started[-1:]))).get("population", {})
    known = {field.name for field in dataclasses.fields(PopulationConfig)}
    foreign = ", ".join(sorted(layer.keys() - known))
    trouble = f"its configuration is another version's (population: {foreign})" if foreign else ""
    usual = PopulationConfig(islands=max([3, *(each.candidate.island for each in history)]) + 1)
    if not layer:
        return usual, trouble
    try:
        given = {name: value for name, value in layer.items() if name in known}
        return resolve({"population": given}).population, trouble
    except ConfigError as error:
        return usual, f"its configuration cannot be used: {error}"


def _population_layer(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"population": config["population"]} if isinstance(config.get("population"), dict) else {}


def _note_reign(reigns: list[Reign], population: Population) -> None:
    best = population.best()
    if best is not None and (not reigns or reigns[-1].candidate_id != best.candidate.id):
        reigns.append(Reign(population.told, best.candidate.id))
