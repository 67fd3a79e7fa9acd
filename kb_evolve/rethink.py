"""Attempts that a killed process had open: those with a recorded reply are thought of again, at no cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from islands.candidate import Evaluated, Ticket
from islands.run import Attempt, Run
from islands.store import Store
from islands.turns import Turn
from mutators import mailbox
from mutators.choose import arm_of
from mutators.proposal import Mutator

PATIENT = frozenset({mailbox.NAME})
"""Models whose open questions are waited for again."""


def again(
    store: Store, attempt: Attempt, members: Mapping[str, Evaluated], mutators: Sequence[Mutator], run: Run
) -> tuple[list[Mutator], Ticket] | None:
    """The operator that was asked and the ticket it had, as far as its reply needs it; None where nothing is to be had.

    The ticket has the parents that the request names, and no others: they are all that an edit is applied to.
    """
    turns = store.turns(run.id, attempt.number)
    if not is_worthwhile(turns):
        return None
    arm = f"{turns[0].operator}@{turns[0].model}"
    mutator = next((one for one in mutators if arm_of(one) == arm), None)
    ticket = _ticket(attempt, turns[0], members, run)
    return ([mutator], ticket) if mutator is not None and ticket is not None else None


def is_worthwhile(turns: Sequence[Turn]) -> bool:
    """Whether an open attempt's first question has its reply, or is one that is waited for."""
    return bool(turns) and (turns[0].text is not None or turns[0].model in PATIENT)


def _ticket(attempt: Attempt, asked: Turn, members: Mapping[str, Evaluated], run: Run) -> Ticket | None:
    if not attempt.parent_ids or attempt.parent_ids[0] not in members:
        return None
    others = tuple(members[one] for one in asked.parent_ids if one in members and one not in attempt.parent_ids)
    return Ticket(
        attempt.number,
        attempt.island,
        f"{run.seed}:{attempt.number}",
        members[attempt.parent_ids[0]],
        inspirations=others,
        failed=others[0] if asked.operator == "repair" and others else None,
    )
