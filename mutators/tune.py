"""`tune`: search over the tunables that a program declares, guided by what its relatives measured."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from islands.candidate import Evaluated, Ticket
from mutators import surrogate
from mutators.choose import UNTOLD
from mutators.proposal import Proposal, known_sources, refused
from mutators.surrogate import Space
from mutators.tunables import Tunable, find_tunables, set_values, structure, values_of

Row = tuple[int, ...]
"""A configuration as the numbers of its choices."""

CLIMBS = 4
"""Steps from the most promising configurations to better neighbours."""
CLIMBERS = 4
"""Configurations from which neighbours are looked at, of the fastest measured and of the most promising alike."""
SHARPNESS = 3
"""The lot falls by this power of the gain: tickets that are asked before the last one is told should differ."""
WHOLE = 2_000
"""Spaces up to this size are listed where sampling finds nothing new."""


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """How the search goes."""

    first: int = 2
    """Configurations known before the model is asked. Far ones instead of random ones cost more on easy landscapes:
    corners of a space mostly fail (docs/landscapes.md)."""
    own: int = 4
    """Configurations that an island must have timed itself before the times of other islands count no more. Their
    failures always count."""
    pool: int = 400
    """Configurations drawn for each proposal, from which the climb to the most promising one starts."""
    least_chance: float = 0.02
    """Least probability that a configuration works: the model of failures may be wrong."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a space."""

    rows: list[Row]
    log_ms: list[float | None]
    """None for a configuration that failed."""
    works: dict[Row, bool]
    """Which configurations run, by what all islands measured: an island finds its own way to the fastest one, but need
    not learn again what fails (docs/landscapes.md)."""

    def timed(self) -> list[tuple[float, Row]]:
        """(log(kernel_ms), configuration), the fastest first."""
        return sorted((log_ms, row) for log_ms, row in zip(self.log_ms, self.rows, strict=True) if log_ms is not None)


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
        random, space, known = Random(ticket.seed), surrogate.space_of(tunables), known_sources(ticket)
        seen = _seen(space, family(ticket), ticket.elsewhere, self.options.own)
        taken, size = set(seen.rows), math.prod(len(one.choices) for one in tunables)
        while len(taken) < size:
            if (found := self._choose(space, seen, taken, random)) is None:
                break
            row, reason = found
            values = space.decode(row)
            if _digest(source, values) not in known:
                return _proposal(ticket, tunables, values, reason)
            taken.add(row)
        return refused(self.name, f"all {size} configurations of this structure were tried", ticket)

    def _choose(self, space: Space, seen: Seen, taken: set[Row], random: Random) -> tuple[Row, str] | None:
        """An untried configuration and why it; None where there is none."""
        drawn = _drawn(space, taken, self.options.pool, random) or _around(space, seen.rows, taken)
        if not drawn:
            return None
        if len(seen.rows) < self.options.first or not seen.timed():
            return drawn[0], "at random, to learn the space"
        return self._most_promising(space, seen, taken, drawn, random)

    def _most_promising(
        self, space: Space, seen: Seen, taken: set[Row], drawn: list[Row], random: Random
    ) -> tuple[Row, str]:
        """Climbs over neighbours to the configurations whose expected gain is greatest; one of them by lot."""
        guess = _Guess(space, seen, self.options.least_chance)
        looked: dict[Row, float] = {}
        top = [row for _, row in seen.timed()[:CLIMBERS]]
        asked = list(dict.fromkeys([*drawn, *_around(space, top, taken)]))
        for _ in range(CLIMBS):
            looked.update(zip(asked, guess.gains(asked), strict=True))
            top = sorted(looked, key=looked.__getitem__, reverse=True)[:CLIMBERS]
            asked = [row for row in _around(space, top, taken) if row not in looked]
            if not asked:
                break
        weights = [looked[one] ** SHARPNESS for one in top]
        row = random.choices(top, weights)[0] if sum(weights) > 0 else top[0]
        best_ms, expected_ms = math.exp(guess.best), guess.kernel_ms(row)
        return row, f"the model of {len(seen.rows)} measurements expects {expected_ms:.3g} ms, best {best_ms:.3g} ms"


class _Guess:
    """What the models expect: one of the time, learnt from what ran, and one of whether a configuration runs."""

    def __init__(self, space: Space, seen: Seen, least_chance: float) -> None:
        import numpy

        timed = seen.timed()
        self.best = timed[0][0]
        """log(kernel_ms) of the fastest."""
        self._time = surrogate.fit(space, numpy.array([row for _, row in timed]), numpy.array([ms for ms, _ in timed]))
        self._works: surrogate.Process | None = None
        self._least_chance = least_chance
        if not all(seen.works.values()):
            works = numpy.array([float(one) for one in seen.works.values()])
            self._works = surrogate.fit(space, numpy.array(list(seen.works)), works)

    def gains(self, rows: list[Row]) -> list[float]:
        """For each row the expected gain, times the chance that it works."""
        import numpy

        asked = numpy.array(rows)
        gain = surrogate.expected_gain(*self._time.predict(asked), self.best)
        if self._works is not None:
            gain = gain * numpy.clip(self._works.predict(asked)[0], self._least_chance, 1.0)
        return [float(one) for one in gain]

    def kernel_ms(self, row: Row) -> float:
        """The expected time of a configuration that works."""
        import numpy

        return math.exp(float(self._time.predict(numpy.array([row]))[0][0]))


def family(ticket: Ticket) -> list[Evaluated]:
    """The parent and its evaluated relatives of the same structure, each source once."""
    same = _structure(ticket.parent.candidate.source)
    members = {}
    for one in (*ticket.lineage, *ticket.inspirations, ticket.parent):
        if _structure(one.candidate.source) == same:
            members[one.candidate.source_sha256] = one
    return list(members.values())


@functools.lru_cache(maxsize=1024)
def _structure(source: str) -> str:
    """Asked of the same relatives at every proposal."""
    return structure(source)


@functools.lru_cache(maxsize=1024)
def _values_of(source: str) -> tuple[tuple[str, str], ...]:
    return tuple(values_of(source).items())


def _seen(space: Space, relatives: Sequence[Evaluated], elsewhere: Sequence[Evaluated], own: int) -> Seen:
    """What is known of the parent's space by its relatives, and by other islands while few of those were timed."""
    found = _measured(space, relatives)
    everywhere = _measured(space, elsewhere) | found
    works = {row: ms is not None for row, ms in everywhere.items()}
    if sum(ms is not None for ms in found.values()) < own:
        found = everywhere
    return Seen(list(found), [None if ms is None else math.log(ms) for ms in found.values()], works)


def _measured(space: Space, several: Sequence[Evaluated]) -> dict[Row, float | None]:
    """kernel_ms by configuration, None for one that failed; a model may have given one a value that is no choice.

    An evaluation that was no verdict, or had no device to be timed on, says nothing of the configuration.
    """
    rows = [(space.encode(dict(_values_of(one.candidate.source))), one.evaluation) for one in several]
    return {row: found.kernel_ms for row, found in rows if row is not None and found.verdict not in UNTOLD}


def _drawn(space: Space, taken: set[Row], count: int, random: Random) -> list[Row]:
    """At most `count` untried configurations at random; all of a small space."""
    counts = [len(one.choices) for one in space.tunables]
    size = math.prod(counts)
    if size <= WHOLE:
        rows = [_row(number, counts) for number in range(size)]
        random.shuffle(rows)
    else:
        rows = [tuple(int(random.random() * one) for one in counts) for _ in range(count)]
    return [row for row in dict.fromkeys(rows) if row not in taken][:count]


def _row(number: int, counts: list[int]) -> Row:
    """Configuration `number` of all, the last tunable fastest."""
    row = []
    for count in reversed(counts):
        number, place = divmod(number, count)
        row.append(place)
    return tuple(reversed(row))


def _around(space: Space, rows: list[Row], taken: set[Row]) -> list[Row]:
    """The untried configurations that differ from one of `rows` in one tunable."""
    found: dict[Row, None] = {}
    for row in rows:
        for place, tunable in enumerate(space.tunables):
            for number in range(len(tunable.choices)):
                near = (*row[:place], number, *row[place + 1 :])
                if near not in taken:
                    found[near] = None
    return list(found)


def _digest(source: str, values: dict[str, str]) -> str:
    return hashlib.sha256(set_values(source, values).encode()).hexdigest()


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
