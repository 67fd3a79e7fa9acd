"""One island: its map of elites, its recent members and how it chooses among them."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, deque
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from fitness.evaluation import Evaluation, Verdict
from islands.archive import Archive
from islands.candidate import DUPLICATE_OF, Evaluated
from islands.distance import Diversity, mean_distance
from islands.elite import beats, fitness
from islands.features import Coordinates
from islands.policies import Members, choose_parent, shuffled

if TYPE_CHECKING:
    from islands.population import PopulationConfig

REPAIRABLE = frozenset(
    {
        Verdict.COMPILE_ERROR,
        Verdict.LOAD_ERROR,
        Verdict.RUNTIME_ERROR,
        Verdict.TIMEOUT,
        Verdict.OUT_OF_MEMORY,
        Verdict.WRONG_RESULT,
    }
)
"""Verdicts whose reason tells a mutator what to mend. `no_verdict` and `verified` say nothing against a program."""

HONEST_SLIPS = re.compile(
    r"forward must return|an output must be|outputs must be dense|an output of dtype|outputs share memory"
    r"|forward wrote to its input|an output must lie in memory of its own|parameters must carry"
)
"""Reasons of the verdict `contract` that an honest program may earn: form, aliases, inputs written to. What is left
(work outside its calls, a process that wakes itself, broken messages) looks like cheating and is not repaired."""


def is_repairable(evaluation: Evaluation) -> bool:
    """Whether a program that failed so may become a good one with its fault mended."""
    if evaluation.verdict is Verdict.CONTRACT:
        return HONEST_SLIPS.search(evaluation.reason) is not None
    return evaluation.verdict in REPAIRABLE


class Island:
    """What an island knows; only its own Population changes it.

    Correct candidates are its members. Failed ones are counted and serve as parents only while there is no
    member (see `parent`); the latest that can be repaired are kept.
    """

    def __init__(self, number: int, recent: int, repairable: int) -> None:
        self.number = number
        self.told = 0
        """Evaluations told of candidates born here; migrants do not count."""
        self.correct = 0
        self.cells: dict[Coordinates, Evaluated] = {}
        """The elite of each occupied cell, in the order in which cells were first reached."""
        self.best: Evaluated | None = None
        self.seed: Evaluated | None = None
        """The first one told, correct or not."""
        self.failures: deque[Evaluated] = deque(maxlen=repairable)
        """The latest ones born here that failed in a way that can be repaired, oldest first."""
        self._improved_at = 0
        """`told` when `best` last changed or the island was emptied."""
        self._visits: Counter[Coordinates] = Counter()
        self._recent: deque[Evaluated] = deque(maxlen=recent)
        self._programs: set[str] = set()
        """What `holds` knows: hashes of sources, and ids of programs."""
        self._archive = Archive()

    def tell(self, evaluated: Evaluated, cell: Coordinates | None, *, program: str, origin: Coordinates | None) -> None:
        """Counts a candidate born here; `cell` is None for one that becomes no member: failed, or a duplicate.

        `program` is as for `settle`; `origin` is the cell that its first parent belongs in, None where it has none. The
        program of a failed duplicate is not kept for repair a second time.
        """
        self.told += 1
        if origin is not None:
            self._visits[origin] += 1
        self.seed = self.seed or evaluated
        if is_repairable(evaluated.evaluation) and DUPLICATE_OF not in evaluated.evaluation.features:
            self.failures.append(evaluated)
        if cell is not None:
            self.correct += 1
            self.settle(evaluated, cell, program)

    def settle(self, evaluated: Evaluated, cell: Coordinates, program: str) -> None:
        """Makes a correct candidate, born here or not, a member.

        `program` is the id of the first candidate of the run that compiled to the same program: its own, or another's.
        """
        self._programs |= {evaluated.candidate.source_sha256, program}
        self._visits[cell] += 1
        self._recent.append(evaluated)
        self._archive.add(evaluated)
        if beats(evaluated.evaluation, self.cells[cell].evaluation if cell in self.cells else None):
            self.cells[cell] = evaluated
        if beats(evaluated.evaluation, self.best.evaluation if self.best else None):
            self.best = evaluated
            self._improved_at = self.told

    def amend(self, evaluation: Evaluation) -> None:
        """Takes a newer evaluation of a program that settled here; one that failed this time is a member no more."""

        def newer(one: Evaluated) -> Evaluated:
            is_same = one.evaluation.source_sha256 == evaluation.source_sha256
            return dataclasses.replace(one, evaluation=evaluation) if is_same else one

        cells = {cell: newer(one) for cell, one in self.cells.items()}
        self.cells = {cell: one for cell, one in cells.items() if one.evaluation.is_correct}
        recent = [newer(one) for one in self._recent]
        self._recent = deque((one for one in recent if one.evaluation.is_correct), self._recent.maxlen)
        members = [newer(one) for one in self._archive.front()]
        self._archive = Archive()
        for member in members:
            self._archive.add(member)
        best = newer(self.best) if self.best else None
        self.seed = newer(self.seed) if self.seed else None
        self.best = best if best and best.evaluation.is_correct else None
        for elite in self.cells.values():
            if beats(elite.evaluation, self.best.evaluation if self.best else None):
                self.best, self._improved_at = elite, self.told

    @property
    def stalled(self) -> int:
        """Evaluations told to it since its best improved, by its own work or by a migrant."""
        return self.told - self._improved_at

    def holds(self, *programs: str) -> bool:
        """Has a member with one of these source hashes or program ids settled here, since it was last emptied?"""
        return not self._programs.isdisjoint(programs)

    def empty(self) -> None:
        """Forgets every member and failure; the clock and the seed stay."""
        self.cells.clear()
        self.best = None
        self.failures.clear()
        self._improved_at = self.told
        self._recent.clear()
        self._visits.clear()
        self._programs.clear()
        self._archive = Archive()

    def parent(self, rng: Random, config: PopulationConfig) -> Evaluated:
        """A parent by the configured policies (policies.py).

        An island without a member gives its seed although it failed, so that repairing it remains possible.
        ValueError when it was told nothing at all.
        """
        if self.best is None:
            if self.seed is None:
                raise ValueError(f"island {self.number} was told no candidate yet. Tell its seed before asking.")
            return self.seed
        return choose_parent(Members(self.best, self.cells, tuple(self._recent), self._visits), rng, config)

    def diversity(self) -> Diversity:
        """How varied its elites and latest members are; some milliseconds."""
        shown = (*self.cells.values(), *self._recent)
        return Diversity(len(self.cells), mean_distance(one.candidate.source for one in shown))

    def inspirations(self, rng: Random, parent: Evaluated, count: int) -> tuple[Evaluated, ...]:
        """Up to `count` members with sources distinct from the parent's and each other's, best first.

        The island's best comes always, then elites of random cells, then its Pareto archive's rest.
        """
        seen = {parent.candidate.source_sha256}
        chosen: list[Evaluated] = []
        for one in self._shown(rng):
            if len(chosen) == count:
                break
            if one.candidate.source_sha256 not in seen:
                seen.add(one.candidate.source_sha256)
                chosen.append(one)
        return tuple(sorted(chosen, key=lambda one: -fitness(one.evaluation)))

    def _shown(self, rng: Random) -> Iterator[Evaluated]:
        """The best, elites in random order, the archive in random order; only what is taken is drawn."""
        if self.best is not None:
            yield self.best
        yield from shuffled(list(self.cells.values()), rng)
        yield from shuffled(self._archive.front(), rng)

    def migrants(self, count: int) -> list[Evaluated]:
        """The best and the next best elites, at most `count` in all."""
        if self.best is None:
            return []
        others = [one for one in self.cells.values() if one is not self.best]
        return [self.best, *sorted(others, key=lambda one: -fitness(one.evaluation))][:count]

    def digest(self) -> list[object]:
        """The island's whole state as JSON values: equal if and only if two islands act the same."""
        return [
            self.number,
            self.told,
            self.correct,
            self.best and self.best.candidate.id,
            self.seed and self.seed.candidate.id,
            [[list(cell), elite.candidate.id] for cell, elite in self.cells.items()],
            self._improved_at,
            [one.candidate.id for one in self.failures],
            [one.candidate.id for one in self._recent],
            sorted(self._programs),
            sorted([list(cell), count] for cell, count in self._visits.items()),
            [one.candidate.id for one in self._archive.front()],
        ]
