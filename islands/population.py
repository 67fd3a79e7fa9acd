"""The population: islands that learn from what they are told and hand out tickets.

Everything here is a fold: the state depends on the configuration and on what was told, in which order, and on
nothing else; `ask` changes nothing. A resumed run is rebuilt by telling its history again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from fitness.evaluation import Evaluation
from islands.candidate import DUPLICATE_OF, Candidate, Evaluated, Ticket
from islands.distance import Diversity
from islands.duels import Fall, Throne, Wanted
from islands.family import Family
from islands.features import DEFAULT_AXES, Coordinates, check_axes, coordinates
from islands.island import Island
from islands.policies import TOPOLOGIES, check_parents, choose_donor
from islands.shelf import Fetch, Shelf

LEAST = {
    "islands": 1,
    "recent": 1,
    "migration_every": 0,
    "migrants": 0,
    "reduel_after": 0,
    "reset_after": 0,
    "tournament": 1,
    "half_life": 1,
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
    topology: str = "ring"
    """Where they are copied to: `ring`, `full`, `random`, `star` or `none` (policies.py)."""
    reset_after: int = 0
    """Evaluations told to an island since its best improved after which it is emptied and starts again from the best of
    another island, if there is one that is clearly better; 0 for never."""
    reduel_after: int = 5
    """Challenges that the elite of the run survives before it is measured afresh, twice as many before the second time,
    and so on; a new one is measured at once (duels.py). 0: never."""
    inspirations: int = 3
    """Most other members shown with a ticket."""
    relatives: int = 200
    """Most evaluated relatives shown with a ticket, its parent included."""
    parents: Mapping[str, float] = field(default_factory=lambda: {"best": 0.4, "cells": 0.4, "recent": 0.2})
    """Relative weights of the policies that choose a parent: `best`, `cells`, `recent`, `tournament`, `rank`,
    `curious`, `novel` (policies.py). A table replaces this one as a whole."""
    tournament: int = 3
    """Members drawn by `tournament` and `novel`, of which one becomes the parent."""
    half_life: int = 100
    """Tickets after which a member's weight under `rank` has halved."""
    recent: int = 32
    """Latest members from which a recent one is drawn."""
    repairable: int = 8
    """Latest failed candidates of an island among which one to repair is looked for."""
    repairs: int = 2
    """Times that a failed candidate may be repaired; a failed repair once less, and so on (family.py)."""
    axes: tuple[str, ...] = DEFAULT_AXES
    """Axes of the map of elites, see features.py; none: one cell per island. A run may go on with others: its history
    is then told again and falls into the new cells."""
    edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Bin edges that replace an axis's own, ascending, in the axis's unit; `memory@cuda` for one backend's."""

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, found {getattr(self, name)}")
        if self.topology not in TOPOLOGIES:
            raise ValueError(f"unknown topology {self.topology!r}, expected one of {', '.join(TOPOLOGIES)}")
        check_parents(self.parents)
        check_axes(self.axes, self.edges)


@dataclass(frozen=True, slots=True)
class Migration:
    """One copy of a member from an island to another one."""

    after: int
    """Evaluations told to the whole population when it happened."""
    origin: int
    target: int
    candidate_id: str
    is_reset: bool = False
    """Whether the target was emptied for it, because it had not improved for long."""


class Population:
    """Islands, and who is related to whom."""

    def __init__(self, config: PopulationConfig, run_id: str, seed: int, fetch: Fetch | None = None) -> None:
        """`fetch` finds told candidates again, so that not all of them have to stay in memory."""
        self.config = config
        self.run_id = run_id
        self.seed = seed
        self.migrations: list[Migration] = []
        """Every migration and every reset so far, oldest first."""
        self._islands = tuple(Island(number, config.recent, config.repairable) for number in range(config.islands))
        self._family = Family(Shelf(fetch))
        self._programs: dict[str, str] = {}
        """Told duplicates -> the first told candidate with the same program."""
        self._throne = Throne(config.reduel_after)

    def seed_candidates(self, source: str, backend: str) -> list[Candidate]:
        """The run's first candidates: the same source once per island, numbered from 0."""
        return [
            Candidate(f"{self.run_id}-{number:06d}", number, number, generation=0, backend=backend, source=source)
            for number in range(self.config.islands)
        ]

    def tell(self, evaluated: Evaluated) -> None:
        """Learns one evaluation. ValueError when its candidate was told before or its island does not exist.

        A correct candidate settles in its island's cell, where the better one stays (elite.beats). A failed
        one, and one that is the same program as a member of its island (DUPLICATE_OF), enters no cell but
        remains known as a relative. After every `migration_every` evaluations of an island its best members are
        copied along the topology, except to islands that have the same program; an island that has not improved for
        `reset_after` evaluations starts again from another's best.
        """
        candidate = evaluated.candidate
        if candidate.id in self._family:
            raise ValueError(f"candidate {candidate.id} was told before; telling it twice would count it twice")
        if not 0 <= candidate.island < len(self._islands):
            raise ValueError(f"candidate {candidate.id} is of island {candidate.island}, have {len(self._islands)}")
        told, evaluated = evaluated, self._throne.current(evaluated)
        self._family.add(evaluated, is_amended=evaluated is not told)
        island = self._islands[candidate.island]
        program = self._note_program(evaluated)
        is_member = evaluated.evaluation.is_correct and (program == candidate.id or not island.holds(program))
        cell = self._cell(evaluated) if is_member else None
        island.tell(evaluated, cell, program=program, origin=self._origin(candidate))
        self._throne.tell(evaluated, self.told - 1)
        if self.config.migration_every and island.told % self.config.migration_every == 0:
            self._migrate(island)
        if self.config.reset_after and island.stalled >= self.config.reset_after:
            self._reset(island)

    def retell(self, evaluated: Evaluated) -> Evaluated:
        """Learns a fresh measurement of a candidate told before; returns the candidate with the estimate that counts.

        Wherever its program is a member its evaluation is replaced, and the elite of the run may change. ValueError
        when the candidate was never told.
        """
        candidate = evaluated.candidate
        if candidate.id not in self._family:
            raise ValueError(f"candidate {candidate.id} was never told; tell it before telling it again")
        amended = self._throne.retell(evaluated, self.told)
        self._family.amend(replace(evaluated, evaluation=amended.evaluation))
        for island in self._islands:
            if island.holds(candidate.source_sha256):
                island.amend(amended.evaluation)
        return amended

    def find(self, candidate_id: str) -> Evaluated | None:
        """The told candidate of that id with the estimate that counts now; None where there is none."""
        return self._family.find(candidate_id)

    def is_worth_a_duel(self, evaluation: Evaluation) -> bool:
        """Whether a candidate's first measurement lies above the elite's, so that a second one must decide."""
        return self._throne.is_worth_a_duel(evaluation)

    def wanted(self) -> Wanted | None:
        """The told candidate that should be measured afresh next, for `retell`; None when there is no doubt left."""
        return self._throne.wanted()

    def falls(self) -> tuple[Fall, ...]:
        """Every elite that lost its place, with its reason, oldest first."""
        return tuple(self._throne.falls)

    def _note_program(self, evaluated: Evaluated) -> str:
        """The id of the first told candidate that compiled to the same program; its own where it is the first."""
        candidate_id, twin_id = evaluated.candidate.id, str(evaluated.evaluation.features.get(DUPLICATE_OF, ""))
        if twin_id == candidate_id or twin_id not in self._family:
            return candidate_id
        self._programs[candidate_id] = self._program(twin_id)
        return self._programs[candidate_id]

    def _program(self, candidate_id: str) -> str:
        return self._programs.get(candidate_id, candidate_id)

    def _cell(self, evaluated: Evaluated) -> Coordinates:
        return coordinates(evaluated, self.config.axes, self.config.edges)

    def _origin(self, candidate: Candidate) -> Coordinates | None:
        """The cell of a candidate's first parent, None where it has no correct one."""
        parent = self._family.find(candidate.parent_ids[0]) if candidate.parent_ids else None
        return self._cell(parent) if parent is not None and parent.evaluation.is_correct else None

    def _draw(self, purpose: str, island: Island) -> Random:
        """A generator that depends on the run's seed and on an island's clock: a replay draws the same."""
        return Random(f"{self.seed}:{purpose}:{island.number}:{island.told}")

    def _migrate(self, island: Island) -> None:
        to = TOPOLOGIES[self.config.topology](island.number, len(self._islands), self._draw("migrate", island))
        for migrant in island.migrants(self.config.migrants):
            programs = (migrant.candidate.source_sha256, self._program(migrant.candidate.id))
            for target in (self._islands[number] for number in to):
                if not target.holds(*programs):
                    self._copy(migrant, island.number, target)

    def _reset(self, island: Island) -> None:
        """Empties a stagnant island and copies the best of a better one to it; nothing where there is no better one."""
        homes = {one.best.candidate.id: one for one in self._islands if one is not island and one.best is not None}
        bests = [one.best for one in homes.values() if one.best is not None]
        founder = choose_donor(island.best, bests, self._draw("reset", island))
        if founder is not None:
            island.empty()
            self._copy(founder, homes[founder.candidate.id].number, island, is_reset=True)

    def _copy(self, migrant: Evaluated, origin: int, target: Island, *, is_reset: bool = False) -> None:
        """Makes a member of one island one of another too; it stays where it is, and keeps its id and its parents."""
        target.settle(migrant, self._cell(migrant), self._program(migrant.candidate.id))
        self.migrations.append(Migration(self.told, origin, target.number, migrant.candidate.id, is_reset))

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
            lineage=self._family.relatives(parent.candidate.id, self.config.relatives),
            elsewhere=self._family.elsewhere(parent.candidate.id, self.config.relatives),
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
        """The elite of the run (duels.py) with the estimate that counts now; None while no candidate is correct."""
        return self._throne.holder.evaluated if self._throne.holder else None

    def islands(self) -> tuple[Island, ...]:
        """The islands by number, to look at."""
        return self._islands

    def diversity(self) -> tuple[Diversity, ...]:
        """How varied each island is, by number; some milliseconds each."""
        return tuple(island.diversity() for island in self._islands)

    @property
    def cells(self) -> dict[tuple[int, Coordinates], Evaluated]:
        """The elite of each occupied cell, by island and coordinates."""
        return {(island.number, cell): elite for island in self._islands for cell, elite in island.cells.items()}

    def digest(self) -> str:
        """Hex digest of the whole state: equal for populations that will answer every `ask` the same."""
        state = [
            self.seed,
            sorted(dataclasses.asdict(self.config).items()),
            self.told,
            self._throne.digest(),
            [island.digest() for island in self._islands],
            [[one.after, one.origin, one.target, one.candidate_id, one.is_reset] for one in self.migrations],
            self._family.digest(),
            sorted(self._programs.items()),
        ]
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
