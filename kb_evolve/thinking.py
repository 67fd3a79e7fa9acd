"""Asking mutators for a proposal: one after the other until one gives a new program."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from islands.candidate import Ticket
from mutators.choose import arm_of
from mutators.proposal import Mutator, Proposal, Usage, add_usage

log = logging.getLogger(__name__)

SECOND_SEED = "again"


@dataclass(frozen=True, slots=True)
class Thought:
    """What came of a ticket: a proposal, or the reasons of all mutators for giving nothing new."""

    proposal: Proposal | None
    outcome: str
    """How the attempt is to be closed: `candidate`, `duplicate`, `refused` or `error`."""
    reasons: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    """What was paid, for proposals without use too."""
    arm: str = ""
    """Which mutator, and with which model, was asked first."""
    details: dict[str, Any] = field(default_factory=dict)
    """What the last proposal without use had to say."""


Alike = Callable[[str], tuple[str | None, Usage]]
"""Gives the id of the candidate that a source means the same as, and what it cost to find out."""


def think(
    mutators: Sequence[Mutator], ticket: Ticket, known_as: Callable[[str], str | None], alike: Alike | None = None
) -> Thought:
    """The first proposal whose source is new; runs in a thinking thread, never raises for a mutator's sake.

    `known_as` gives the id of the candidate that a source repeats. Mutators cannot know what is in flight:
    those that repeated something are asked once more, with another seed. A mutator that uses a model is asked alone:
    a ticket is paid for once, and one arm answers for it. What it wrote must not mean the same as another, either.
    """
    if is_paid(mutators[0]):
        return _think_once(mutators[0], ticket, known_as, alike)
    return _think_free([mutator for mutator in mutators if not is_paid(mutator)], ticket, known_as)


def is_paid(mutator: Mutator) -> bool:
    """Whether it asks a model."""
    return arm_of(mutator) != mutator.name


def _think_once(
    mutator: Mutator, ticket: Ticket, known_as: Callable[[str], str | None], alike: Alike | None
) -> Thought:
    arm = arm_of(mutator)
    try:
        proposal = mutator.propose(ticket)
    except Exception as error:
        log.warning("mutator failed name=%s ticket=%d", arm, ticket.number, exc_info=True)
        return Thought(None, "error", (f"{arm} failed with {type(error).__name__}: {error}",), arm=arm)
    if proposal.source is None:
        reason = f"{arm} refused: {proposal.refusal}"
        return Thought(None, "refused", (reason,), proposal.usage, arm, proposal.details)
    if (known_id := known_as(proposal.source)) is not None:
        reason = f"{arm} repeated candidate {known_id}"
        return Thought(None, "duplicate", (reason,), proposal.usage, arm, proposal.details)
    if alike is None:
        return Thought(proposal, "candidate", (), proposal.usage, arm)
    like_id, paid = alike(proposal.source)
    usage = dataclasses.replace(add_usage(proposal.usage, paid), model=proposal.usage.model)
    if like_id is not None:
        reason = f"{arm} wrote what means the same as candidate {like_id}, by their embeddings"
        return Thought(None, "duplicate", (reason,), usage, arm, proposal.details)
    return Thought(proposal, "candidate", (), usage, arm)


def _think_free(mutators: Sequence[Mutator], ticket: Ticket, known_as: Callable[[str], str | None]) -> Thought:
    reasons: list[str] = []
    usage = Usage()
    outcome, arm = "refused", mutators[0].name
    repeating: list[Mutator] = []
    again = dataclasses.replace(ticket, seed=f"{ticket.seed}:{SECOND_SEED}")
    for asked, current in ((mutators, ticket), (repeating, again)):
        for mutator in asked:
            try:
                proposal = mutator.propose(current)
            except Exception as error:
                log.warning("mutator failed name=%s ticket=%d", mutator.name, ticket.number, exc_info=True)
                reasons.append(f"{mutator.name} failed with {type(error).__name__}: {error}")
                outcome, arm = ("error", mutator.name) if outcome == "refused" else (outcome, arm)
                continue
            usage = add_usage(usage, proposal.usage)
            if proposal.source is None:
                reasons.append(f"{mutator.name} refused: {proposal.refusal}")
            elif (known_id := known_as(proposal.source)) is not None:
                reasons.append(f"{mutator.name} repeated candidate {known_id}")
                outcome = "duplicate"
                if current is ticket:
                    repeating.append(mutator)
            else:
                return Thought(proposal, "candidate", tuple(reasons), usage, proposal.mutator)
    return Thought(None, outcome, tuple(reasons), usage, arm)
