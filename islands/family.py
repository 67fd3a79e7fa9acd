"""Who is related to whom: the evaluated relatives of a candidate, found without a scan over history."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from islands.candidate import Evaluated
from islands.elite import fitness
from islands.novelty import skeleton

REPAIR = "repair"
"""The mutator whose child mends its first parent."""


@dataclass(slots=True)
class _Standing:
    """What a told candidate is worth as something to repair."""

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

    def __init__(self) -> None:
        self._told: dict[str, Evaluated] = {}
        self._positions: dict[str, int] = {}
        self._children: dict[str, list[str]] = {}
        self._twins: dict[tuple[int, str], list[str]] = {}
        self._skeletons: dict[str, str] = {}
        self._standings: dict[str, _Standing] = {}

    def __contains__(self, candidate_id: object) -> bool:
        return candidate_id in self._told

    def __len__(self) -> int:
        return len(self._told)

    def find(self, candidate_id: str) -> Evaluated | None:
        """The told candidate of that id, None where there is none."""
        return self._told.get(candidate_id)

    def add(self, evaluated: Evaluated) -> None:
        """Links a candidate to the parents it names; they need not be told."""
        candidate = evaluated.candidate
        self._positions[candidate.id] = len(self._told)
        self._told[candidate.id] = evaluated
        for parent_id in dict.fromkeys(candidate.parent_ids):
            self._children.setdefault(parent_id, []).append(candidate.id)
        self._skeletons[candidate.id] = skeleton(candidate.source)
        self._twins.setdefault((candidate.island, self._skeletons[candidate.id]), []).append(candidate.id)
        self._standings[candidate.id] = self._stand(evaluated)

    def amend(self, evaluated: Evaluated) -> None:
        """Takes a newer evaluation of a told candidate; its place among the others stays."""
        self._told[evaluated.candidate.id] = evaluated
        if evaluated.evaluation.is_correct:
            self._standings[evaluated.candidate.id].promise = fitness(evaluated.evaluation)

    def _stand(self, evaluated: Evaluated) -> _Standing:
        candidate, is_correct = evaluated.candidate, evaluated.evaluation.is_correct
        parent = self._standings.get(candidate.parent_ids[0]) if candidate.parent_ids else None
        inherited = parent.promise if parent else -math.inf
        promise = fitness(evaluated.evaluation) if is_correct else inherited
        if candidate.mutator != REPAIR:
            return _Standing(promise, 0)
        if parent is not None:
            parent.repairs += 1
            parent.is_mended |= is_correct
        return _Standing(promise, 1 + (parent.depth if parent else 0))

    def may_be_repaired(self, candidate_id: str, repairs: int) -> bool:
        """Whether one more repair is allowed. Each repair in a row leaves one less: the first failure may be repaired
        `repairs` times, a failed repair of it once less, and so on, so that every chain ends. One repair that turns
        out correct ends it too.
        """
        standing = self._standings[candidate_id]
        return not standing.is_mended and standing.repairs < repairs - standing.depth

    def promise(self, candidate_id: str) -> float:
        """log(speedup) of the candidate if it is correct, else of the nearest correct one along first parents."""
        return self._standings[candidate_id].promise

    def digest(self) -> list[list[object]]:
        """What was told, in order: id, mutator, parents, verdict and speedup."""
        return [
            [of.id, of.mutator, of.parent_ids, one.evaluation.verdict, one.evaluation.speedup]
            for one in self._told.values()
            for of in (one.candidate,)
        ]

    def relatives(self, evaluated: Evaluated, limit: int) -> tuple[Evaluated, ...]:
        """The candidate itself and its told relatives, at most `limit` in all, in the order told.

        Where there are more, each kind (twins, ancestors, siblings, descendants) gives an equal share, the
        nearest and newest first.
        """
        own = evaluated.candidate.id
        kinds = [self._twins_of(own), self._ancestors(own), self._siblings(own), self._descendants(own)]
        chosen = {own: None} if limit > 0 else {}
        while kinds and len(chosen) < limit:
            kinds = [kind for kind in kinds if len(chosen) >= limit or self._take(kind, chosen)]
        ids = sorted((one for one in chosen if one in self._told), key=self._positions.__getitem__)
        return tuple(self._told[one] for one in ids)

    @staticmethod
    def _take(kind: Iterator[str], chosen: dict[str, None]) -> bool:
        """Adds the next one of `kind` that is not chosen yet; False when there is none left."""
        for candidate_id in kind:
            if candidate_id not in chosen:
                chosen[candidate_id] = None
                return True
        return False

    def _twins_of(self, own: str) -> Iterator[str]:
        island = self._told[own].candidate.island
        return reversed(self._twins[island, self._skeletons[own]])

    def _ancestors(self, own: str) -> Iterator[str]:
        return self._walk(own, lambda one: self._told[one].candidate.parent_ids)

    def _descendants(self, own: str) -> Iterator[str]:
        return self._walk(own, lambda one: reversed(self._children.get(one, ())))

    def _siblings(self, own: str) -> Iterator[str]:
        for parent_id in self._told[own].candidate.parent_ids:
            yield from reversed(self._children.get(parent_id, ()))

    def _walk(self, own: str, neighbours: Callable[[str], Iterable[str]]) -> Iterator[str]:
        """Breadth first from `own`, each told candidate once."""
        waiting, seen = deque([own]), {own}
        while waiting:
            for candidate_id in neighbours(waiting.popleft()):
                if candidate_id in self._told and candidate_id not in seen:
                    seen.add(candidate_id)
                    waiting.append(candidate_id)
                    yield candidate_id
