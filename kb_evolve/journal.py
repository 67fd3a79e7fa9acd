"""The store as the place where conversations with models are recorded."""

from __future__ import annotations

import dataclasses
from typing import Any

from islands.store import Store
from islands.turns import Turn
from mutators.dialogue import Message, ModelError, Reply, Request
from mutators.ledger import worst_tokens
from mutators.proposal import Usage


class StoreJournal:
    """A run's journal; several threads may use it."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._run_id = store, run_id

    def reply(self, number: int, turn: int) -> Reply | None:
        """The recorded reply, None where there is none."""
        found = self._store.find_turn(self._run_id, number, turn)
        return reply_of(found) if found is not None else None

    def open(self, request: Request, worst_usd: float | None) -> None:
        """Records the intent to ask, or to try once more, with what all tries so far may cost at worst."""
        self._store.open_request(self._run_id, {**request_fields(request), "worst_usd": worst_usd})

    def close(self, request: Request, reply: Reply) -> None:
        """Records the reply."""
        fields = {**dataclasses.asdict(reply), "usage": dataclasses.asdict(reply.usage)}
        self._store.add_reply(self._run_id, request.number, request.turn, fields)

    def fail(self, request: Request, error: ModelError) -> None:
        """Records that no reply came, and what was paid all the same."""
        self._store.add_model_failure(
            self._run_id,
            request.number,
            request.turn,
            kind=error.kind,
            reason=error.reason,
            usage=dataclasses.asdict(error.usage),
        )


def request_fields(request: Request) -> dict[str, Any]:
    """The request as islands/turns.py records it, without its worst cost."""
    parameters = {**request.parameters, "max_tokens": request.max_tokens, "temperature": request.temperature}
    return {
        "number": request.number,
        "turn": request.turn,
        "operator": request.operator,
        "model": request.model,
        "island": request.island,
        "parent_ids": request.parent_ids,
        "messages": tuple(dataclasses.asdict(message) for message in request.messages),
        "prompt_version": request.prompt_version,
        "parameters": parameters,
    }


def reply_of(turn: Turn) -> Reply | None:
    """The reply of a stored turn, None where there is none yet."""
    if turn.text is None:
        return None
    return Reply(turn.text, turn.reasoning, turn.finish_reason, Usage(**turn.usage))


def _request_of(turn: Turn) -> Request:
    """As much of a stored request as its size needs."""
    messages = tuple(Message("user", message["content"]) for message in turn.messages)
    most = int(turn.parameters.get("max_tokens") or 0)
    return Request(turn.number, turn.turn, turn.operator, turn.model, messages, max_tokens=most)


def settle_lost(store: Store, run_id: str, *, keep: frozenset[str] = frozenset()) -> None:
    """Counts requests that a killed process had in flight at their worst: the provider may have charged for them.

    `keep`: models that take their time and can be waited for again, such as the mailbox.
    """
    for turn in store.unsettled(run_id):
        if turn.model not in keep:
            tokens = worst_tokens(_request_of(turn))
            usage = Usage(turn.model, *tokens, turn.worst_usd or 0.0, is_priced=turn.worst_usd is not None)
            store.add_model_failure(
                run_id,
                turn.number,
                turn.turn,
                kind="lost",
                reason="the process ended before the reply came; counted at its worst case",
                usage=dataclasses.asdict(usage),
            )
