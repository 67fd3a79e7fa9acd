"""The population: islands that learn from what they are told and hand out tickets.

Everything here is a fold: the state depends on the configuration and on what was told, in which order, and on
nothing else; `ask` changes nothing. A resumed run is rebuilt by telling its history again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from islands.candidate import DUPLICATE_OF, Candidate, Evaluated, Ticket
from islands.elite import beats
from islands.family import Family
from islands.features import AXES, Coordinates, coordinates
from islands.island import Island

LEAST = {
    "islands": 1,
    "recent": 1,
    "migration_every": 0,
    "migrants": 0,
    "inspirations": 0,
    "relatives": 0,
    "repairable": 0,
    "repairs": 0,
}


@dataclass(frozen=True, slots=True)
class PopulationConfig:
    """How a population selects. ValueError when built with values that make no sense."""

    islands: int = 4
    migration_every: int = 20
    """Evaluations told to an island between two migrations from it; 0 for no migration."""
    migrants: int = 1
    """Candidates copied at each migration: the best, then the next best elites."""
    inspirations: int = 3
    """Most other members shown with a ticket."""
    relatives: int = 200
    """Most evaluated relatives shown with a ticket, its parent included."""
    exploit: float = 0.4
    """Probability that an island's best is the parent."""
    explore: float = 0.4
    """Probability that the elite of a random cell is the parent; what is left goes to recent members."""
    recent: int = 32
    """Latest members from which a recent one is drawn."""
    repairable: int = 8
    """Latest failed candidates of an island among which one to repair is looked for."""
    repairs: int = 2
    """Times that a failed candidate may be repaired; a failed repair once less, and so on (family.py)."""
    axes: tuple[str, ...] = ("threads", "vector", "size", "memory")
    """Axes of the map of elites, see features.py; none: one cell per island."""
    edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Bin edges that replace an axis's own, ascending, in the axis's unit."""

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, found {getattr(self, name)}")
        if min(self.exploit, self.explore) < 0 or self.exploit + self.explore > 1:
            raise ValueError(f"exploit + explore must lie in 0..1, found {self.exploit} + {self.explore}")
        for name in (*self.axes, *self.edges):
            if name not in AXES:
                raise ValueError(f"unknown axis {name!r}, expected some of {', '.join(AXES)}")
        for name, edges in self.edges.items():
            if list(edges) != sorted(set(edges)):
                raise ValueError(f"edges of axis {name} must ascend, found {edges}")


@dataclass(frozen=True, slots=True)
class Migration:
    """One copy of a member from an island to the next."""

    after: int
    """Evaluations told to the whole population when it happened."""
    origin: int
    target: int
    candidate_id: str


class Population:
    """Islands, and who is related to whom."""

    def __init__(self, config: PopulationConfig, run_id: str, seed: int) -> None:
        self.config = config
        self.run_id = run_id
        self.seed = seed
        self.migrations: list[Migration] = []
        """Every migration so far, oldest first."""
        self._islands = tuple(Island(number, config.recent, config.repairable) for number in range(config.islands))
        self._family = Family()
        self._best: Evaluated | None = None

    def seed_candidates(self, source: str, backend: str) -> list[Candidate]:
        """The run's first candidates: the same source once per island, numbered from 0."""
        return [
            Candidate(f"{self.run_id}-{number:06d}", number, number, generation=0, backend=backend, source=source)
            for number in range(self.config.islands)
        ]

    def tell(self, evaluated: Evaluated) -> None:
        """Learns one evaluation. ValueError when its candidate was told before or its island does not exist.

        A correct candidate settles in its island's cell, where the better one stays (elite.beats). A failed
        one, and one that repeats the evaluation of another of its island (DUPLICATE_OF), enters no cell but
        remains known as a relative. After every `migration_every` evaluations of an island its best members are
        copied to the next island, unless that has had the same source.
        """
        candidate = evaluated.candidate
        if candidate.id in self._family:
            raise ValueError(f"candidate {candidate.id} was told before; telling it twice would count it twice")
        if not 0 <= candidate.island < len(self._islands):
            raise ValueError(f"candidate {candidate.id} is of island {candidate.island}, have {len(self._islands)}")
        self._family.add(evaluated)
        island = self._islands[candidate.island]
        is_member = evaluated.evaluation.is_correct and not self._is_repeated(evaluated)
        island.tell(evaluated, self._cell(evaluated) if is_member else None)
        if is_member and beats(evaluated.evaluation, self._best.evaluation if self._best else None):
            self._best = evaluated
        if self.config.migration_every and island.told % self.config.migration_every == 0:
            self._migrate(island)

    def _is_repeated(self, evaluated: Evaluated) -> bool:
        twin = self._family.find(str(evaluated.evaluation.features.get(DUPLICATE_OF, "")))
        return twin is not None and twin.candidate.island == evaluated.candidate.island

    def _cell(self, evaluated: Evaluated) -> Coordinates:
        return coordinates(evaluated, self.config.axes, self.config.edges)

    def _migrate(self, island: Island) -> None:
        target = self._islands[(island.number + 1) % len(self._islands)]
        for migrant in island.migrants(self.config.migrants):
            if not target.holds(migrant.candidate.source_sha256):
                target.settle(migrant, self._cell(migrant))
                event = Migration(self.told, island.number, target.number, migrant.candidate.id)
                self.migrations.append(event)

    def ask(self, number: int) -> Ticket:
        """Ticket `number`: depends on what was told so far and on `number`, changes nothing.

        The island is number modulo islands, and parent and inspirations are its members only. ValueError when
        that island was told nothing yet (see `ready`).
        """
        island = self._islands[number % len(self._islands)]
        seed = f"{self.seed}:{number}"
        rng = Random(f"{seed}:ask")  # not Random(seed): the mutator draws from that, and must not repeat our draws
        parent = island.parent(rng, self.config)
        return Ticket(
            number,
            island.number,
            seed,
            parent,
            inspirations=island.inspirations(rng, parent, self.config.inspirations),
            lineage=self._family.relatives(parent, self.config.relatives),
            failed=self._to_repair(island, seed),
            stalled=island.stalled,
        )

    def _to_repair(self, island: Island, seed: str) -> Evaluated | None:
        """One of the island's latest failures that may be repaired once more, None where there is none.

        Those whose nearest correct ancestor is fastest come first, of equals the newest; each is drawn half as often
        as the one before it, so that tickets in flight at the same time seldom repair the same one. Repairs that are
        not told yet do not count: the state is what was told.
        """
        waiting = [
            one for one in island.failures if self._family.may_be_repaired(one.candidate.id, self.config.repairs)
        ]
        if not waiting:
            return None
        ranked = sorted(reversed(waiting), key=lambda one: -self._family.promise(one.candidate.id))
        weights = [0.5**rank for rank in range(len(ranked))]
        return Random(f"{seed}:failed").choices(ranked, weights)[0]  # a stream of its own: parents stay as they were

    def ready(self, number: int) -> bool:
        """Was the island of ticket `number` told at least its seed?"""
        return self._islands[number % len(self._islands)].seed is not None

    @property
    def told(self) -> int:
        """Evaluations told so far."""
        return len(self._family)

    def best(self) -> Evaluated | None:
        """The correct candidate that no later one has beaten (elite.beats); None while there is none."""
        return self._best

    def islands(self) -> tuple[Island, ...]:
        """The islands by number, to look at."""
        return self._islands

    @property
    def cells(self) -> dict[tuple[int, Coordinates], Evaluated]:
        """The elite of each occupied cell, by island and coordinates."""
        return {(island.number, cell): elite for island in self._islands for cell, elite in island.cells.items()}

    def digest(self) -> str:
        """Hex digest of the whole state: equal for populations that will answer every `ask` the same."""
        state = [
            self.seed,
            self.told,
            self._best and self._best.candidate.id,
            [island.digest() for island in self._islands],
            [[event.after, event.origin, event.target, event.candidate_id] for event in self.migrations],
            self._family.digest(),
        ]
        return hashlib.sha256(json.dumps(state).encode()).hexdigest()
