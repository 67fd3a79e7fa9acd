"""Asking mutators for a proposal: one after the other until one does not refuse."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from islands.candidate import Ticket
from mutators.proposal import Mutator, Proposal, Usage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Thought:
    """What came of a ticket: a proposal, or the reasons of all mutators for giving none."""

    proposal: Proposal | None
    reasons: tuple[str, ...] = ()
    usage: Usage = Usage()
    """What was paid, refusals included."""
    failed: bool = False
    """A mutator raised, which is its defect, not the ticket's."""


def think(mutators: Sequence[Mutator], ticket: Ticket) -> Thought:
    """The first proposal with a source; runs in a thinking thread and never raises for a mutator's sake."""
    reasons: list[str] = []
    usage = Usage()
    failed = False
    for mutator in mutators:
        try:
            proposal = mutator.propose(ticket)
        except Exception as error:
            log.warning("mutator failed name=%s ticket=%d", mutator.name, ticket.number, exc_info=True)
            reasons.append(f"{mutator.name} failed with {type(error).__name__}: {error}")
            failed = True
            continue
        usage = add_usage(usage, proposal.usage)
        if proposal.source is not None:
            return Thought(proposal, tuple(reasons), usage, failed)
        reasons.append(f"{mutator.name} refused: {proposal.refusal}")
    return Thought(None, tuple(reasons), usage, failed)


def add_usage(one: Usage, other: Usage) -> Usage:
    """The sum; the model's name is the later one that has one."""
    return Usage(
        model=other.model or one.model,
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
        cost_usd=one.cost_usd + other.cost_usd,
        latency_s=one.latency_s + other.latency_s,
    )
