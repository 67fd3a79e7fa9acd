"""The nouns of change: Usage, Proposal, Refusal, and the Mutator seam."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from islands.candidate import Ticket


class ProposalError(Exception):
    """A mutator was set up wrongly. What a ticket cannot give is a refused Proposal, not this."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a proposal cost."""

    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    latency_s: float = 0.0
    is_priced: bool = True
    """Whether `cost_usd` holds all of it: False where a model's price is not known."""


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


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something cannot be done to a source; a value, because a candidate may always be unfit."""

    reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A changed program, or the reason why there is none.

    Exactly one of `source` and `refusal` is set (ValueError otherwise).
    """

    mutator: str
    rationale: str
    """What was changed and why, in one sentence."""
    source: str | None = None
    refusal: str | None = None
    parent_ids: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    """JSON values that the mutator wants back through `ticket.lineage`."""
    usage: Usage = Usage()

    def __post_init__(self) -> None:
        if (self.source is None) == (self.refusal is None):
            raise ValueError("a proposal has either a source or a refusal, found both or neither")


class Mutator(Protocol):
    """Proposes one change. Pure: the same ticket gives the same proposal."""

    name: str

    def propose(self, ticket: Ticket) -> Proposal:
        """A proposal for `ticket`; everything random comes from `Random(ticket.seed)`."""
        ...


def refused(mutator: str, reason: str, ticket: Ticket) -> Proposal:
    """A proposal that gives nothing, with the reason."""
    parents = (ticket.parent.candidate.id,)
    return Proposal(mutator=mutator, rationale="", refusal=reason, parent_ids=parents)


def known_sources(ticket: Ticket) -> set[str]:
    """Digests of every source that the ticket shows: proposing one of them again would waste a measurement."""
    shown = (ticket.parent, *ticket.inspirations, *ticket.lineage)
    return {member.candidate.source_sha256 for member in shown}
