"""`tune`: search over the tunables that a program declares, guided by what its relatives measured."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from random import Random

from islands.candidate import Evaluated, Ticket
from mutators.proposal import Proposal, known_sources, refused
from mutators.surrogate import Observation, best_by_draw, fit
from mutators.tunables import Tunable, find_tunables, set_values, structure, values_of

POOL = 4_000
"""Configurations looked at per proposal; a larger space is sampled."""


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """How the search goes."""

    space_filling: int = 4
    """Proposals spread over the space before the model is asked."""
    neighbour_probability: float = 0.25
    """How often only configurations one value away from the best are considered."""
    failure_factor: float = 4.0
    """A configuration that failed counts as this much slower than the slowest measured."""


class Tune:
    """The mutator. Changes tunable values and nothing else; never proposes what the lineage holds."""

    name = "tune"

    def __init__(self, options: TuneOptions = TuneOptions()) -> None:
        self.options = options

    def propose(self, ticket: Ticket) -> Proposal:
        """The parent with the most promising configuration that nobody tried."""
        source = ticket.parent.candidate.source
        tunables = find_tunables(source)
        if not tunables:
            return refused(self.name, "the parent declares no tunables (`NAME = VALUE;  // tune: V1 V2 ...`)", ticket)
        random = Random(ticket.seed)
        relatives = family(ticket)
        tried = {tuple(sorted(values_of(one.candidate.source).items())) for one in relatives}
        known = known_sources(ticket)
        untried = [values for values in _pool(tunables, random) if tuple(sorted(values.items())) not in tried]
        untried = [values for values in untried if _digest(source, values) not in known]
        if not untried:
            size = math.prod(len(tunable.choices) for tunable in tunables)
            return refused(self.name, f"all {size} configurations of this structure were tried", ticket)
        values, reason = self._choose(tunables, untried, self._observations(tunables, relatives), random)
        return _proposal(ticket, tunables, values, reason)

    def _observations(self, tunables: tuple[Tunable, ...], relatives: list[Evaluated]) -> list[Observation]:
        """What is known of the parent's space: a model may give a relative a value outside of the choices."""
        times = [one.evaluation.kernel_ms for one in relatives if one.evaluation.kernel_ms is not None]
        failed_ms = max(times, default=1.0) * self.options.failure_factor
        measured = [(values_of(one.candidate.source), one.evaluation.kernel_ms or failed_ms) for one in relatives]
        return [
            Observation(values, time_ms)
            for values, time_ms in measured
            if all(values.get(tunable.name) in tunable.choices for tunable in tunables)
        ]

    def _choose(
        self,
        tunables: tuple[Tunable, ...],
        untried: list[dict[str, str]],
        seen: list[Observation],
        random: Random,
    ) -> tuple[dict[str, str], str]:
        if len(seen) < min(self.options.space_filling, len(untried)):
            return _farthest(tunables, untried, seen, random), "far from what was measured, to learn the space"
        best = min(seen, key=lambda one: one.kernel_ms)
        if random.random() < self.options.neighbour_probability:
            near = [values for values in untried if _is_neighbour(tunables, values, best.values)]
            untried = near or untried
        values, predicted_ms = best_by_draw(fit(tunables, seen), tunables, untried, random)
        return (
            values,
            f"the model of {len(seen)} measurements expects {predicted_ms:.3g} ms, best {best.kernel_ms:.3g} ms",
        )


def family(ticket: Ticket) -> list[Evaluated]:
    """The parent and its evaluated relatives of the same structure, each source once."""
    same = structure(ticket.parent.candidate.source)
    members = {}
    for one in (*ticket.lineage, *ticket.inspirations, ticket.parent):
        if structure(one.candidate.source) == same:
            members[one.candidate.source_sha256] = one
    return list(members.values())


def _pool(tunables: tuple[Tunable, ...], random: Random) -> list[dict[str, str]]:
    """Every configuration, or a sample where there are too many."""
    names = [tunable.name for tunable in tunables]
    if math.prod(len(tunable.choices) for tunable in tunables) <= POOL:
        combinations = itertools.product(*(tunable.choices for tunable in tunables))
        return [dict(zip(names, values, strict=True)) for values in combinations]
    current = {tunable.name: tunable.value for tunable in tunables}
    near = [{**current, tunable.name: choice} for tunable in tunables for choice in tunable.choices]
    drawn = ({tunable.name: random.choice(tunable.choices) for tunable in tunables} for _ in range(POOL))
    return list({tuple(values.items()): values for values in (*near, *drawn)}.values())


def _digest(source: str, values: dict[str, str]) -> str:
    import hashlib

    return hashlib.sha256(set_values(source, values).encode()).hexdigest()


def _distance(tunables: tuple[Tunable, ...], first: dict[str, str], second: dict[str, str]) -> float:
    total = 0.0
    for tunable in tunables:
        if tunable.is_ordinal:
            places = tunable.coordinates()
            total += abs(places.get(first[tunable.name], 0.5) - places.get(second.get(tunable.name, ""), 0.5))
        else:
            total += first[tunable.name] != second.get(tunable.name)
    return total


def _farthest(
    tunables: tuple[Tunable, ...], untried: list[dict[str, str]], seen: list[Observation], random: Random
) -> dict[str, str]:
    """The configuration whose nearest measured one is farthest; ties by lot."""
    sample = random.sample(untried, min(len(untried), 400))
    return max(sample, key=lambda values: min(_distance(tunables, values, one.values) for one in seen))


def _is_neighbour(tunables: tuple[Tunable, ...], values: dict[str, str], best: dict[str, str]) -> bool:
    """Whether the two differ in one tunable, by one step where its values are ordered."""
    differing = [tunable for tunable in tunables if values[tunable.name] != best.get(tunable.name)]
    if len(differing) != 1:
        return False
    (tunable,) = differing
    if not tunable.is_ordinal or best.get(tunable.name) not in tunable.choices:
        return True
    order = sorted(tunable.choices, key=lambda choice: tunable.coordinates()[choice])
    return abs(order.index(values[tunable.name]) - order.index(best[tunable.name])) == 1


def _proposal(ticket: Ticket, tunables: tuple[Tunable, ...], values: dict[str, str], reason: str) -> Proposal:
    changed = [
        f"{tunable.name} {tunable.value} -> {values[tunable.name]}"
        for tunable in tunables
        if values[tunable.name] != tunable.value
    ]
    return Proposal(
        mutator=Tune.name,
        rationale=f"Set {', '.join(changed)}: {reason}.",
        source=set_values(ticket.parent.candidate.source, values),
        parent_ids=(ticket.parent.candidate.id,),
        details={"tunables": values},
    )
