"""What a run has seen: to recognise a program that comes again."""

from __future__ import annotations

from dataclasses import dataclass, field

from fitness.evaluation import Evaluation
from islands.candidate import Candidate
from islands.novelty import fingerprint


@dataclass(slots=True)
class Known:
    """What this run has seen, to recognise the same program again."""

    programs: dict[tuple[int, str], str] = field(default_factory=dict)
    """(island, fingerprint) -> candidate id."""
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    """source_sha256 -> evaluation told in this run, unless that was no verdict."""
    told: dict[str, Evaluation] = field(default_factory=dict)
    """candidate id -> evaluation."""
    generations: dict[str, int] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)

    def add(self, candidate: Candidate) -> None:
        """Remembers a candidate that is in the store."""
        self.programs.setdefault((candidate.island, fingerprint(candidate.source)), candidate.id)
        self.generations[candidate.id] = candidate.generation
        self.numbers.add(candidate.number)

    def name_of(self, island: int, source: str) -> str | None:
        """The id of the island's candidate with the same program; None for a new one."""
        return self.programs.get((island, fingerprint(source)))
