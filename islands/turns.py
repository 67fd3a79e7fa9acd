"""Conversations with models in the store: requests before they are sent, replies before they are used."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from islands.codec import decode, encode, plain
from islands.records import readable
from islands.run import utc_now

EMBED = "embed"
"""The operator of requests for vectors."""

SETTLED = """
    coalesce((SELECT max(last_try) FROM model_failures WHERE model_failures.run_id = requests.run_id
              AND model_failures.number = requests.number AND model_failures.turn = requests.turn), 0)
"""

TURNS = f"""
    SELECT requests.run_id, requests.number, requests.turn, operator, model, island, parent_ids,
        {readable("requests", "messages")} AS messages, prompt_version, parameters, opened_at,
        {readable("replies", "text")} AS text, {readable("replies", "reasoning")} AS reasoning,
        finish_reason, usage, at AS replied_at,
        (SELECT max(worst_usd) FROM tries WHERE tries.run_id = requests.run_id AND tries.number = requests.number
            AND tries.turn = requests.turn AND tries.id > {SETTLED}) AS worst_usd
    FROM requests LEFT JOIN replies USING (run_id, number, turn)
"""

SPENT = """
    SELECT requests.model, operator, island, number, paid.at, paid.usage FROM requests JOIN
        (SELECT run_id, number, turn, usage, at FROM replies UNION ALL
         SELECT run_id, number, turn, usage, at FROM model_failures) AS paid USING (run_id, number, turn)
    WHERE requests.run_id = :run
"""

UNANSWERED = """
    NOT EXISTS (SELECT 1 FROM replies WHERE replies.run_id = requests.run_id
                AND replies.number = requests.number AND replies.turn = requests.turn)
"""

UNSETTLED = f"""
    {UNANSWERED} AND EXISTS (SELECT 1 FROM tries WHERE tries.run_id = requests.run_id
                AND tries.number = requests.number AND tries.turn = requests.turn AND tries.id > {SETTLED})
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request and, once there is one, its reply."""

    run_id: str
    number: int
    turn: int
    operator: str
    model: str
    island: int
    parent_ids: tuple[str, ...]
    messages: tuple[dict[str, str], ...]
    """`role` and `content` of each, exactly as sent."""
    prompt_version: str
    parameters: dict[str, Any]
    opened_at: str
    worst_usd: float | None = None
    """What its tries since the last failure could cost at most; None: not known, or nothing."""
    text: str | None = None
    """The reply; None while there is none."""
    reasoning: str = ""
    finish_reason: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    replied_at: str | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """What one reply, or one failure, cost."""

    model: str
    operator: str
    island: int
    number: int
    """Of the attempt that asked."""
    at: str
    """When it came: UTC, ISO 8601."""
    usage: dict[str, Any]


class Turns:
    """The part of a Store that keeps conversations."""

    if TYPE_CHECKING:  # what the Store gives

        def _write(self, what: str, run_id: str | None = None) -> AbstractContextManager[None]: ...

        def _rows(self, sql: str, values: Any = ()) -> list[dict[str, Any]]: ...

        def _insert(self, table: str, values: dict[str, Any]) -> int: ...

    def open_request(self, run_id: str, request: Mapping[str, Any]) -> None:
        """Records a question before it is asked, and that it is being tried; the question itself once.

        `request` has Turn's fields up to `parameters` without `run_id`, and `worst_usd`. StoreError when its attempt
        does not exist.
        """
        what = f"record request {request['turn']} of attempt {request['number']}"
        place = {"run_id": run_id, "number": request["number"], "turn": request["turn"]}
        values = {
            **{name: value for name, value in request.items() if name != "worst_usd"},
            "run_id": run_id,
            "parent_ids": encode(request["parent_ids"]),
            "messages": encode([{name: plain(text) for name, text in one.items()} for one in request["messages"]]),
            "parameters": encode(request["parameters"]),
            "opened_at": utc_now(),
        }
        with self._write(what, run_id):
            asked = "SELECT 1 FROM requests WHERE run_id = :run_id AND number = :number AND turn = :turn"
            if not self._rows(asked, place):
                self._insert("requests", values)
            self._insert("tries", place | {"worst_usd": request["worst_usd"], "at": utc_now()})

    def add_reply(self, run_id: str, number: int, turn: int, reply: Mapping[str, Any]) -> None:
        """Records a reply: `text`, `reasoning`, `finish_reason`, `usage`. StoreError when there is one already."""
        values = {
            "run_id": run_id,
            "number": number,
            "turn": turn,
            "text": plain(reply["text"]),
            "reasoning": plain(reply["reasoning"]),
            "finish_reason": plain(reply["finish_reason"]),
            "usage": encode(reply["usage"]),
            "at": utc_now(),
        }
        with self._write(f"record the reply to request {turn} of attempt {number}", run_id):
            self._insert("replies", values)

    def add_model_failure(
        self, run_id: str, number: int, turn: int, *, kind: str, reason: str, usage: Mapping[str, Any]
    ) -> None:
        """Records that a question got no reply, and what was paid all the same."""
        place = {"run_id": run_id, "number": number, "turn": turn}
        tried = (
            "SELECT coalesce(max(id), 0) AS id FROM tries WHERE run_id = :run_id AND number = :number AND turn = :turn"
        )
        with self._write(f"record that request {turn} of attempt {number} failed", run_id):
            values = place | {"kind": kind, "reason": plain(reason), "last_try": self._rows(tried, place)[0]["id"]}
            self._insert("model_failures", values | {"usage": encode(dict(usage)), "at": utc_now()})

    def find_turn(self, run_id: str, number: int, turn: int) -> Turn | None:
        """That request with its reply; None when it was never asked."""
        where = "WHERE requests.run_id = ? AND requests.number = ? AND requests.turn = ?"
        found = self._rows(f"{TURNS} {where}", [run_id, number, turn])
        return turn_of(found[0]) if found else None

    def turns(self, run_id: str, number: int | None = None, *, operator: str | None = None) -> list[Turn]:
        """All turns of a run, or of one of its attempts, in order: what was said, or the requests of one operator.

        Requests for vectors are no conversation: they are given only to who asks for their operator.
        """
        where = "WHERE requests.run_id = :run" + ("" if number is None else " AND requests.number = :number")
        where += " AND CASE WHEN :operator IS NULL THEN operator <> :embed ELSE operator = :operator END"
        values = {"run": run_id, "number": number, "operator": operator, "embed": EMBED}
        return [turn_of(row) for row in self._rows(f"{TURNS} {where} ORDER BY requests.number, turn", values)]

    def unanswered(self, run_id: str | None = None) -> list[Turn]:
        """Requests of attempts that are still open and have no reply, oldest first; of all runs without `run_id`."""
        rows = self._rows(
            f"{TURNS} WHERE (:run IS NULL OR requests.run_id = :run) AND {UNANSWERED} AND NOT EXISTS "
            "(SELECT 1 FROM outcomes WHERE outcomes.run_id = requests.run_id AND outcomes.number = requests.number) "
            "ORDER BY requests.opened_at, requests.number, turn",
            {"run": run_id},
        )
        return [turn_of(row) for row in rows]

    def unsettled(self, run_id: str) -> list[Turn]:
        """Requests whose latest try has neither a reply nor a failure: those that a killed process had in flight."""
        return [turn_of(row) for row in self._rows(f"{TURNS} WHERE requests.run_id = ? AND {UNSETTLED}", [run_id])]

    def spent(self, run_id: str) -> list[Spent]:
        """What every reply and every failure of the run cost."""
        rows = self._rows(SPENT, {"run": run_id})
        return [Spent(**{**row, "usage": decode(row["usage"])}) for row in rows]


def turn_of(row: Mapping[str, Any]) -> Turn:
    """The turn of a row of TURNS."""
    usage = decode(row["usage"]) if row["usage"] else {}
    return Turn(
        **{
            **row,
            "parent_ids": tuple(decode(row["parent_ids"])),
            "messages": tuple(decode(row["messages"])),
            "parameters": decode(row["parameters"]),
            "reasoning": row["reasoning"] or "",
            "finish_reason": row["finish_reason"] or "",
            "usage": usage,
        }
    )
