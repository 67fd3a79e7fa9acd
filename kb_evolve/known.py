"""What a run has seen: to recognise a program that comes again, by its source before a build, by its binaries after.

Digests and ids are kept, no sources and no evaluations: those are read from the store when a program does come again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.novelty import digests, digests_of, host

BINARY = "binary_sha256"
"""Feature of an evaluation: the hash of what the build compiled (fitness/binaries.py)."""

DIGEST_BYTES = 16
"""Of a digest: enough to tell all programs apart."""


class Known:
    """What this run has seen, to recognise the same program again."""

    def __init__(
        self, find: Callable[[str], Candidate | None], told: Callable[[Sequence[str]], Iterable[Evaluated]]
    ) -> None:
        """`find` gives a recorded candidate, `told` told ones as they were told: the store's find_candidate and
        told_of."""
        self._find, self._read_told = find, told
        self._programs: dict[bytes, str] = {}
        """Island and fingerprint -> id of the first candidate."""
        self._builds: dict[bytes, list[tuple[int, str]]] = {}
        """Binary -> island and id of the candidates whose build gave it, in the order in which they came."""
        self._told: dict[bytes, str] = {}
        """Source -> id of the last candidate that was told a verdict."""
        self._failed_since: dict[bytes, Evaluation] = {}
        """Source -> a later measurement that was not correct."""
        self.generations: dict[str, int] = {}
        self.numbers: set[int] = set()
        self._hosts: dict[str, str] = {}
        """Candidate id -> its host, read when another program compiles to the same: seldom, so a resume reads none."""

    def add(self, candidate: Candidate) -> None:
        """Remembers a candidate that is in the store."""
        self._programs.setdefault(_key(digests_of(candidate).program, candidate.island), candidate.id)
        self.generations[candidate.id] = candidate.generation
        self.numbers.add(candidate.number)

    def name_of(self, island: int, source: str) -> str | None:
        """The id of the island's candidate with the same program; None for a new one."""
        return self._programs.get(_key(digests(source).program, island))

    def add_told(self, candidate: Candidate, evaluation: Evaluation) -> None:
        """Remembers that a candidate was told its evaluation, unless that is no verdict."""
        if evaluation.verdict is not Verdict.NO_VERDICT:
            self._told[_key(candidate.source_sha256)] = candidate.id

    def amend(self, evaluated: Evaluated) -> None:
        """Takes a fresh measurement of a told program: one that was not correct counts from now on."""
        if not evaluated.evaluation.is_correct:
            self._failed_since[_key(evaluated.candidate.source_sha256)] = evaluated.evaluation

    def evaluation_of(self, source_sha256: str) -> Evaluation | None:
        """What this source was told in this run; None where it was told nothing, or no verdict."""
        key = _key(source_sha256)
        if key in self._failed_since or key not in self._told:
            return self._failed_since.get(key)
        return next((one.evaluation for one in self._read_told([self._told[key]])), None)

    def judged(self) -> list[Evaluation]:
        """What every source was told, in the order in which the sources came."""
        found = {one.candidate.id: one.evaluation for one in self._read_told(list(self._told.values()))}
        return [self._failed_since.get(key, found[one]) for key, one in self._told.items()]

    def add_build(self, candidate: Candidate, binary_sha256: str) -> None:
        """Remembers what a candidate's build compiled; nothing where that is not known (an empty hash)."""
        if binary_sha256:
            self._builds.setdefault(_key(binary_sha256), []).append((candidate.island, candidate.id))

    def name_of_binary(self, island: int | None, source: str, binary_sha256: str) -> str | None:
        """The id of the island's, or for None of any island's, candidate that compiles to the same program.

        The Python around the binaries counts too: the same library called with other arguments is another program.
        """
        alike = self._builds.get(_key(binary_sha256)) if binary_sha256 else None
        if not alike:
            return None
        outside = host(source)
        return next((one for home, one in alike if island in (None, home) and self._host(one) == outside), None)

    def _host(self, candidate_id: str) -> str:
        if candidate_id not in self._hosts:
            candidate = self._find(candidate_id)
            self._hosts[candidate_id] = host(candidate.source) if candidate is not None else ""
        return self._hosts[candidate_id]


def _key(digest: str, island: int | None = None) -> bytes:
    start = b"" if island is None else island.to_bytes(4, "big")
    return start + bytes.fromhex(digest)[:DIGEST_BYTES]
