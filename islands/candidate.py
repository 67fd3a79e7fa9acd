"""The nouns of the population: Candidate, Ticket, Evaluated."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fitness.evaluation import Evaluation

DUPLICATE_OF = "duplicate_of"
"""Feature of an evaluation that nobody measured: the id of the candidate with the same compiled program whose
evaluation it repeats."""


@dataclass(frozen=True, slots=True)
class Digests:
    """What tells one source from another, as hex digests; see novelty.py."""

    source: str
    """Of the exact bytes: sha256."""
    program: str
    """Of the program, without what no compiler sees: `novelty.fingerprint`."""
    skeleton: str
    """Of the source without the values of its tunables: `novelty.skeleton`."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One program in the population."""

    id: str
    """`<run id>-<ticket number, six digits>`: unique across machines, the same on replay."""
    number: int
    """The ticket's number in its run, counted from 0; a run's seeds come first."""
    island: int
    generation: int
    """0 for seeds, otherwise one more than the oldest parent's."""
    backend: str
    source: str
    parent_ids: tuple[str, ...] = ()
    mutator: str = "seed"
    rationale: str = ""
    """What the mutator changed and why, in one sentence."""
    details: dict[str, Any] = field(default_factory=dict)
    """The mutator's own structured record (JSON values), such as `{"tunables": {"TILE": 64}}`."""
    digests: Digests | None = field(default=None, compare=False, repr=False)
    """Of the source, where the store had them ready; `novelty.digests_of` gives them in any case."""

    @property
    def source_sha256(self) -> str:
        """Hex digest of the exact source bytes."""
        if self.digests is not None:
            return self.digests.source
        return hashlib.sha256(self.source.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A candidate with what the judge found."""

    candidate: Candidate
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Ticket:
    """What `ask` hands out: a parent to change and what else is worth looking at."""

    number: int
    island: int
    seed: str
    """Seeds every random choice made for this ticket: `Random(ticket.seed)`."""
    parent: Evaluated
    inspirations: tuple[Evaluated, ...] = ()
    """Members of the same island, their sources distinct from the parent's and each other's, best first:
    elites, then the rest of its Pareto archive; second parents for crossover."""
    lineage: tuple[Evaluated, ...] = ()
    """The parent and its evaluated relatives, failed ones included, in the order told: ancestors, siblings,
    descendants, and programs of the island that differ from it only in tunables. At most
    `PopulationConfig.relatives`; what a model-based mutator learns from."""
    elsewhere: Sequence[Evaluated] = ()
    """What other islands measured of programs that differ from the parent only in tunables, in the order told: which
    configurations run at all is the same on every island. At most `PopulationConfig.relatives`; what is not held is
    read when somebody looks, since only `tune` does."""
    failed: Evaluated | None = None
    """A failed candidate of the island that is worth repairing; None where there is none (Population.ask)."""
    stalled: int = 0
    """Evaluations told to the island since its best improved."""
