"""The nouns of a conversation with a model: Message, Request, Reply, ModelError; and two seams, Model and Journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from mutators.proposal import Usage

Role = Literal["system", "user", "assistant"]

Kind = Literal[
    "auth",
    "bad_request",
    "rate_limit",
    "server",
    "timeout",
    "connection",
    "content_filter",
    "bad_reply",
    "budget",
    "cancelled",
]
"""Why a model gave no reply: `budget` when asking might have passed the cap, `cancelled` when the run stops."""


@dataclass(frozen=True, slots=True)
class Message:
    """One part of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model. (number, turn) names it within its run: asked again, it is answered from the record."""

    number: int
    """The ticket's."""
    turn: int
    """0 for the first question of a ticket, 1 for the answer to a refused edit."""
    operator: str
    model: str
    """As the user named it, such as `openai/gpt-5` or `mailbox`."""
    messages: tuple[Message, ...]
    island: int = 0
    parent_ids: tuple[str, ...] = ()
    prompt_version: str = ""
    """Digest of the templates that the prompt was made of."""
    max_tokens: int = 8_192
    """Most completion tokens, reasoning included."""
    temperature: float | None = None
    """None: the provider's own."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Further parameters of the provider, JSON values; never keys."""
    wants: Literal["text", "vectors"] = "text"
    """`vectors`: the embedding of each message, in one reply (mutators/embedding.py)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered."""

    text: str
    reasoning: str = ""
    """A reasoning model's separate field; shown, never parsed for code."""
    finish_reason: str = "stop"
    """`stop`, `length` (truncated), `content_filter`, or the provider's word."""
    usage: Usage = field(default_factory=Usage)


class ModelError(Exception):
    """A model gave no reply, after all retries; `usage` is what the tries cost."""

    def __init__(self, kind: Kind, reason: str, usage: Usage | None = None) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.usage = kind, reason, usage or Usage()


class Model(Protocol):
    """Answers requests; several threads may ask at once."""

    name: str

    def ask(self, request: Request) -> Reply:
        """The reply, once it is recorded. Raises ModelError."""
        ...


class Journal(Protocol):
    """Where requests and replies are recorded before they are acted on; the store's side is kb_evolve/journal.py."""

    def reply(self, number: int, turn: int) -> Reply | None:
        """The recorded reply, None where there is none."""
        ...

    def open(self, request: Request, worst_usd: float | None) -> None:
        """Records the intent to ask, with what it costs at worst (None: unknown); again before every further try."""
        ...

    def close(self, request: Request, reply: Reply) -> None:
        """Records the reply."""
        ...

    def fail(self, request: Request, error: ModelError) -> None:
        """Records that no reply came, and what was paid all the same. The request may be asked again."""
        ...
