"""Where told candidates stand: those used lately in memory, the others wherever they can be fetched from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from fitness.evaluation import Evaluation
from islands.candidate import Evaluated

Fetch = Callable[[Sequence[str]], Iterable[Evaluated]]
"""Told candidates by their ids, in any order, as they were told: Store.told_of."""

HELD = 4_096
"""Candidates kept in memory where the others can be fetched: some 30 MB with sources of 4 KB."""


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
            for fetched in self._fetch(missing):
                candidate = fetched.candidate
                evaluation = self._amended.get(candidate.id, fetched.evaluation)
                found[candidate.id] = Evaluated(candidate, evaluation)
        if lost := [one for one in missing if one not in found]:
            raise LookupError(f"told candidate {lost[0]} is not in the store: its row is lost. Check the file.")
        for one in candidate_ids:
            self._hold(one, found[one])
        return [found[one] for one in candidate_ids]

    def _hold(self, candidate_id: str, evaluated: Evaluated) -> None:
        self._held[candidate_id] = evaluated
        self._held.move_to_end(candidate_id)
        while self._fetch is not None and len(self._held) > self._most:
            self._held.popitem(last=False)
