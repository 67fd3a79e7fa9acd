"""What a run has seen: to recognise a program that comes again, by its source before a build, by its binaries after."""

from __future__ import annotations

from dataclasses import dataclass, field

from fitness.evaluation import Evaluation
from islands.candidate import Candidate
from islands.novelty import exact, fingerprint, host

BINARY = "binary_sha256"
"""Feature of an evaluation: the hash of what the build compiled (fitness/binaries.py)."""


@dataclass(slots=True)
class Known:
    """What this run has seen, to recognise the same program again."""

    programs: dict[tuple[int, str], str] = field(default_factory=dict)
    """(island, fingerprint) -> id of the first candidate."""
    builds: dict[str, list[Candidate]] = field(default_factory=dict)
    """binary_sha256 -> the candidates whose build gave it, in the order in which they came."""
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    """source_sha256 -> evaluation told in this run, unless that was no verdict."""
    told: dict[str, Evaluation] = field(default_factory=dict)
    """candidate id -> evaluation."""
    generations: dict[str, int] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    _fingerprints: dict[str, str] = field(default_factory=dict)
    """Digest of a source -> its fingerprint: one program is looked for several times, and a fingerprint takes 1 ms."""
    _hosts: dict[str, str] = field(default_factory=dict)
    """Candidate id -> its host, read when another program compiles to the same: seldom, so a resume reads none."""

    def add(self, candidate: Candidate) -> None:
        """Remembers a candidate that is in the store."""
        self.programs.setdefault((candidate.island, self._fingerprint(candidate.source)), candidate.id)
        self.generations[candidate.id] = candidate.generation
        self.numbers.add(candidate.number)

    def name_of(self, island: int, source: str) -> str | None:
        """The id of the island's candidate with the same program; None for a new one."""
        return self.programs.get((island, self._fingerprint(source)))

    def _fingerprint(self, source: str) -> str:
        key = exact(source)
        found = self._fingerprints.get(key)
        if found is None:
            found = self._fingerprints[key] = fingerprint(source)
        return found

    def add_build(self, candidate: Candidate, binary_sha256: str) -> None:
        """Remembers what a candidate's build compiled; nothing where that is not known (an empty hash)."""
        if binary_sha256:
            self.builds.setdefault(binary_sha256, []).append(candidate)

    def name_of_binary(self, island: int | None, source: str, binary_sha256: str) -> str | None:
        """The id of the island's, or for None of any island's, candidate that compiles to the same program.

        The Python around the binaries counts too: the same library called with other arguments is another program.
        """
        alike = self.builds.get(binary_sha256) if binary_sha256 else None
        if not alike:
            return None
        outside = host(source)
        on_it = (one for one in alike if island in (None, one.island))
        return next((one.id for one in on_it if self._host(one) == outside), None)

    def _host(self, candidate: Candidate) -> str:
        if candidate.id not in self._hosts:
            self._hosts[candidate.id] = host(candidate.source)
        return self._hosts[candidate.id]
