"""Asking mutators for a proposal: one after the other until one gives a new program."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from islands.candidate import Ticket
from mutators.proposal import Mutator, Proposal, Usage

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


def think(mutators: Sequence[Mutator], ticket: Ticket, known_as: Callable[[str], str | None]) -> Thought:
    """The first proposal whose source is new; runs in a thinking thread, never raises for a mutator's sake.

    `known_as` gives the id of the candidate that a source repeats. Mutators cannot know what is in flight:
    those that repeated something are asked once more, with another seed.
    """
    reasons: list[str] = []
    usage = Usage()
    outcome = "refused"
    repeating: list[Mutator] = []
    again = dataclasses.replace(ticket, seed=f"{ticket.seed}:{SECOND_SEED}")
    for asked, current in ((mutators, ticket), (repeating, again)):
        for mutator in asked:
            try:
                proposal = mutator.propose(current)
            except Exception as error:
                log.warning("mutator failed name=%s ticket=%d", mutator.name, ticket.number, exc_info=True)
                reasons.append(f"{mutator.name} failed with {type(error).__name__}: {error}")
                outcome = "error" if outcome == "refused" else outcome
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
                return Thought(proposal, "candidate", tuple(reasons), usage)
    return Thought(None, outcome, tuple(reasons), usage)


def add_usage(one: Usage, other: Usage) -> Usage:
    """The sum; the model's name is the later one that has one."""
    return Usage(
        model=other.model or one.model,
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
        cost_usd=one.cost_usd + other.cost_usd,
        latency_s=one.latency_s + other.latency_s,
        is_priced=one.is_priced and other.is_priced,
    )
