"""Where told candidates stand: those used lately in memory, the others wherever they can be fetched from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import overload

from fitness.evaluation import Evaluation
from islands.candidate import Evaluated

Fetch = Callable[[Sequence[str]], Iterable[Evaluated]]
"""Told candidates by their ids, in any order, as they were told: Store.told_of."""

HELD = 20_480
"""Candidates kept in memory where the others can be fetched, 110 MB with sources of 4 KB: about as many as are
relatives of a map's elites. With a fifth of them each ask of a large run reads forty and takes twice as long."""


class Later(Sequence[Evaluated]):
    """Told candidates, read when somebody looks; what is in memory by then, and which evaluations count, stands fixed.

    Safe to use from several threads. Reading raises LookupError for one that cannot be fetched.
    """

    def __init__(
        self, ids: Sequence[str], held: Mapping[str, Evaluated], amended: Mapping[str, Evaluation], fetch: Fetch
    ) -> None:
        self._ids, self._held, self._amended, self._fetch = ids, held, amended, fetch
        self._read: tuple[Evaluated, ...] | None = None

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, place: int) -> Evaluated: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Evaluated, ...]: ...
    def __getitem__(self, place: int | slice) -> Evaluated | tuple[Evaluated, ...]:
        if self._read is None:
            missing = [one for one in self._ids if one not in self._held]
            fetched = _counting(self._fetch(missing) if missing else (), self._amended)
            self._read = _ordered(self._ids, {**self._held, **fetched})
        return self._read[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


class Shelf:
    """Told candidates by id. Without `fetch` all of them stay in memory."""

    def __init__(self, fetch: Fetch | None = None, held: int = HELD) -> None:
        self._fetch, self._most = fetch, held
        self._held: OrderedDict[str, Evaluated] = OrderedDict()
        self._amended: dict[str, Evaluation] = {}
        """Evaluations that are not those told: of programs that were measured again."""

    def put(self, evaluated: Evaluated, *, is_amended: bool = False) -> None:
        """Takes a candidate that was told; `is_amended` where its evaluation is not the one told."""
        candidate_id = evaluated.candidate.id
        if is_amended:
            self._amended[candidate_id] = evaluated.evaluation
        self._hold(candidate_id, evaluated)

    def get(self, candidate_ids: Sequence[str]) -> list[Evaluated]:
        """The candidates of these ids, in this order, with the evaluations that count now.

        Raises LookupError for one that cannot be fetched.
        """
        found = {one: self._held[one] for one in candidate_ids if one in self._held}
        missing = [one for one in candidate_ids if one not in found]
        if missing and self._fetch is not None:
            found |= _counting(self._fetch(missing), self._amended)
        ordered = _ordered(candidate_ids, found)
        for one in ordered:
            self._hold(one.candidate.id, one)
        return list(ordered)

    def later(self, candidate_ids: Sequence[str]) -> Sequence[Evaluated]:
        """The same, but what is not in memory is read when somebody looks; it does not come into memory by that."""
        held = {one: self._held[one] for one in candidate_ids if one in self._held}
        if self._fetch is None:
            return _ordered(candidate_ids, held)
        amended = {one: self._amended[one] for one in candidate_ids if one in self._amended}
        return Later(candidate_ids, held, amended, self._fetch)

    def _hold(self, candidate_id: str, evaluated: Evaluated) -> None:
        self._held[candidate_id] = evaluated
        self._held.move_to_end(candidate_id)
        while self._fetch is not None and len(self._held) > self._most:
            self._held.popitem(last=False)


def _counting(fetched: Iterable[Evaluated], amended: Mapping[str, Evaluation]) -> dict[str, Evaluated]:
    """By id, with the evaluations that count."""
    found = {}
    for one in fetched:
        candidate = one.candidate
        found[candidate.id] = Evaluated(candidate, amended.get(candidate.id, one.evaluation))
    return found


def _ordered(candidate_ids: Sequence[str], found: Mapping[str, Evaluated]) -> tuple[Evaluated, ...]:
    if lost := [one for one in candidate_ids if one not in found]:
        raise LookupError(f"told candidate {lost[0]} is not in the store: its row is lost. Check the file.")
    return tuple(found[one] for one in candidate_ids)
