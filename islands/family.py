"""Who is related to whom: the evaluated relatives of a candidate, found without a scan over history."""

from __future__ import annotations

import itertools
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fitness.evaluation import Verdict
from islands.candidate import Evaluated
from islands.elite import fitness
from islands.novelty import digests_of
from islands.shelf import Shelf

REPAIR = "repair"
"""The mutator whose child mends its first parent."""

DIGEST_BYTES = 16
"""Of a skeleton's digest: enough to tell all programs apart."""


@dataclass(slots=True)
class _Member:
    """What is remembered of a told candidate; the rest stands on the shelf."""

    position: int
    """How many were told before it."""
    island: int
    parent_ids: tuple[str, ...]
    mutator: str
    twins: list[str]
    """All programs, on whichever island, that differ from it only in the values of tunables, itself included."""
    verdict: Verdict
    speedup: float | None
    promise: float
    """log(speedup) of itself if correct, else of the nearest correct one along first parents; -inf without any."""
    depth: int
    """How many repairs in a row, along first parents, led to it."""
    repairs: int = 0
    """Told candidates that a repair made of it."""
    is_mended: bool = False
    """Whether one of them is correct."""


class Family:
    """Told candidates with the links between them.

    Relatives of a candidate are its ancestors, its siblings (children of a parent of it), its descendants,
    and its twins: programs of the same island that differ from it only in the values of tunables.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._members: dict[str, _Member] = {}
        self._children: dict[str, list[str]] = {}
        self._twins: dict[bytes, list[str]] = {}
        """Skeleton -> its programs, on whichever island."""

    def __contains__(self, candidate_id: object) -> bool:
        return candidate_id in self._members

    def __len__(self) -> int:
        return len(self._members)

    def find(self, candidate_id: str) -> Evaluated | None:
        """The told candidate of that id, None where there is none."""
        return self._shelf.get([candidate_id])[0] if candidate_id in self._members else None

    def add(self, evaluated: Evaluated, *, is_amended: bool = False) -> None:
        """Links a candidate to the parents it names; they need not be told.

        `is_amended`: its evaluation is not the one that it was told.
        """
        candidate, evaluation = evaluated.candidate, evaluated.evaluation
        parent_ids = tuple(map(sys.intern, candidate.parent_ids))
        for parent_id in dict.fromkeys(parent_ids):
            self._children.setdefault(parent_id, []).append(candidate.id)
        twins = self._twins.setdefault(bytes.fromhex(digests_of(candidate).skeleton)[:DIGEST_BYTES], [])
        twins.append(candidate.id)
        promise, depth = self._stand(evaluated)
        self._members[candidate.id] = _Member(
            len(self._members), candidate.island, parent_ids, sys.intern(candidate.mutator), twins,
            evaluation.verdict, evaluation.speedup, promise, depth,
        )  # fmt: skip
        self._shelf.put(evaluated, is_amended=is_amended)

    def amend(self, evaluated: Evaluated) -> None:
        """Takes a newer evaluation of a told candidate; its place among the others stays."""
        member, evaluation = self._members[evaluated.candidate.id], evaluated.evaluation
        member.verdict, member.speedup = evaluation.verdict, evaluation.speedup
        if evaluation.is_correct:
            member.promise = fitness(evaluation)
        self._shelf.put(evaluated, is_amended=True)

    def _stand(self, evaluated: Evaluated) -> tuple[float, int]:
        """Its promise and depth; its parent learns of a repair."""
        candidate, is_correct = evaluated.candidate, evaluated.evaluation.is_correct
        parent = self._members.get(candidate.parent_ids[0]) if candidate.parent_ids else None
        inherited = parent.promise if parent else -math.inf
        promise = fitness(evaluated.evaluation) if is_correct else inherited
        if candidate.mutator != REPAIR:
            return promise, 0
        if parent is not None:
            parent.repairs += 1
            parent.is_mended |= is_correct
        return promise, 1 + (parent.depth if parent else 0)

    def may_be_repaired(self, candidate_id: str, repairs: int) -> bool:
        """Whether one more repair is allowed. Each repair in a row leaves one less: the first failure may be repaired
        `repairs` times, a failed repair of it once less, and so on, so that every chain ends. One repair that turns
        out correct ends it too.
        """
        standing = self._members[candidate_id]
        return not standing.is_mended and standing.repairs < repairs - standing.depth

    def promise(self, candidate_id: str) -> float:
        """log(speedup) of the candidate if it is correct, else of the nearest correct one along first parents."""
        return self._members[candidate_id].promise

    def digest(self) -> list[list[object]]:
        """What was told, in order: id, mutator, parents, verdict and speedup."""
        return [
            [candidate_id, one.mutator, one.parent_ids, one.verdict, one.speedup]
            for candidate_id, one in self._members.items()
        ]

    def relatives(self, candidate_id: str, limit: int) -> tuple[Evaluated, ...]:
        """The candidate itself and its told relatives, at most `limit` in all, in the order told.

        Where there are more, each kind (twins, ancestors, siblings, descendants) gives an equal share, the
        nearest and newest first.
        """
        own = candidate_id
        kinds = [self._twins_of(own), self._ancestors(own), self._siblings(own), self._descendants(own)]
        chosen = {own: None} if limit > 0 else {}
        while kinds and len(chosen) < limit:
            kinds = [kind for kind in kinds if len(chosen) >= limit or self._take(kind, chosen)]
        told = [one for one in chosen if one in self._members]
        return tuple(self._shelf.get(sorted(told, key=lambda one: self._members[one].position)))

    def elsewhere(self, candidate_id: str, limit: int) -> Sequence[Evaluated]:
        """The latest programs of other islands that differ from it only in tunables, in the order told; read later."""
        member = self._members[candidate_id]
        others = (one for one in reversed(member.twins) if self._members[one].island != member.island)
        return self._shelf.later(list(itertools.islice(others, limit))[::-1])

    @staticmethod
    def _take(kind: Iterator[str], chosen: dict[str, None]) -> bool:
        """Adds the next one of `kind` that is not chosen yet; False when there is none left."""
        for candidate_id in kind:
            if candidate_id not in chosen:
                chosen[candidate_id] = None
                return True
        return False

    def _twins_of(self, own: str) -> Iterator[str]:
        member = self._members[own]
        return (one for one in reversed(member.twins) if self._members[one].island == member.island)

    def _ancestors(self, own: str) -> Iterator[str]:
        return self._walk(own, lambda one: self._members[one].parent_ids)

    def _descendants(self, own: str) -> Iterator[str]:
        return self._walk(own, lambda one: reversed(self._children.get(one, ())))

    def _siblings(self, own: str) -> Iterator[str]:
        for parent_id in self._members[own].parent_ids:
            yield from reversed(self._children.get(parent_id, ()))

    def _walk(self, own: str, neighbours: Callable[[str], Iterable[str]]) -> Iterator[str]:
        """Breadth first from `own`, each told candidate once."""
        waiting, seen = deque([own]), {own}
        while waiting:
            for candidate_id in neighbours(waiting.popleft()):
                if candidate_id in self._members and candidate_id not in seen:
                    seen.add(candidate_id)
                    waiting.append(candidate_id)
                    yield candidate_id
