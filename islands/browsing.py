"""Reading a store while others write to it, a page or an increment at a time: what a live view asks for."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Digests, Evaluated
from islands.codec import decode
from islands.lease import this_place
from islands.records import ATTEMPTS_PAGE, TOTALS, attempt_of
from islands.run import Attempt, Event
from islands.turns import EMBED, TURNS, Turn, Turns, turn_of

if TYPE_CHECKING:
    from islands.lease import Owner

LEFT_OUT = frozenset({"log", "reason", "verdict"})
"""Fields of an evaluation that a summary lacks or reads from a column of its own."""

FIELDS = tuple(one.name for one in dataclasses.fields(Evaluation) if one.name not in LEFT_OUT)

ALIKE = ("problem", "backend", "baseline", "device_name", "sandbox", "tier", "judge_sha256", "protocol")
"""Fields that many evaluations have in common: kept in memory once."""

SUMMARY = f"""
    tellings.position, candidates.id, candidates.number, candidates.island, candidates.generation, candidates.backend,
    candidates.source_sha256 AS sha256, candidates.mutator, substr(candidates.rationale, 1, 400) AS rationale,
    (SELECT json_group_array(parent_id) FROM
        (SELECT parent_id FROM parents WHERE candidate_id = candidates.id ORDER BY position)) AS parent_ids,
    json_extract(document, '$.verdict', '$.reason', {", ".join(f"'$.{name}'" for name in FIELDS)}) AS found
"""

OLDEST_FIRST = """
    FROM tellings CROSS JOIN evaluations ON evaluations.id = tellings.evaluation_id
    CROSS JOIN candidates ON candidates.id = tellings.candidate_id
"""

FASTEST_FIRST = """
    FROM evaluations CROSS JOIN tellings ON tellings.evaluation_id = evaluations.id
    CROSS JOIN candidates ON candidates.id = tellings.candidate_id
"""

PAGE, TURNS_PAGE = 500, 100
"""Rows of a stream that are read at once; a turn has a whole prompt."""

STATE = """
    SELECT coalesce((SELECT max(position) + 1 FROM tellings WHERE run_id = :run), 0) AS told,
        coalesce((SELECT max(number) + 1 FROM attempts WHERE run_id = :run), 0) AS asked,
        (SELECT count(*) FROM outcomes WHERE run_id = :run) AS closed,
        coalesce((SELECT max(id) FROM events WHERE run_id = :run), 0) AS event
"""

TOLD = "SELECT coalesce(max(position) + 1, 0) AS told FROM tellings WHERE run_id = ?"

OPENED = """
    SELECT rowid AS place, run_id, number, island, mutator, parent_ids, opened_at, NULL AS outcome, '' AS reason,
        '' AS rationale, '{}' AS usage, '{}' AS details, NULL AS closed_at
    FROM attempts WHERE +run_id = :run AND rowid > :place ORDER BY rowid
"""

SAID = f"""
    {TURNS} WHERE requests.run_id = ? AND operator <> ? AND (requests.number, turn) > (?, ?)
    ORDER BY requests.number, turn LIMIT ?
"""

EVENTS_SINCE = """
    SELECT id, run_id, kind, fields, at FROM events WHERE run_id = ? AND id > ? ORDER BY id LIMIT ?
"""

CLOSED = """
    SELECT outcomes.rowid AS place, outcomes.run_id, outcomes.number, island,
        coalesce(outcomes.mutator, attempts.mutator) AS mutator, parent_ids, opened_at, outcome, reason,
        '' AS rationale, usage, '{}' AS details, closed_at
    FROM outcomes JOIN attempts USING (run_id, number) WHERE +outcomes.run_id = :run AND outcomes.rowid > :place
    ORDER BY outcomes.rowid
"""


@dataclass(frozen=True, slots=True)
class State:
    """How far a run's record has come: two equal ones mean that nothing was added."""

    told: int
    asked: int
    closed: int
    event: int
    """Id of the newest event."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Which candidates of a run are wanted; empty fields want all."""

    verdict: str = ""
    mutator: str = ""
    island: int | None = None
    text: str = ""
    """Stands, in any case of its ASCII letters, in the id, the rationale, the reason or the source."""
    fastest: bool = False
    """The fastest correct ones first, by the figure told; else the newest first."""

    @property
    def is_all(self) -> bool:
        return self == Wish()


class Browsing(Turns):
    """The part of a Store that live views read."""

    if TYPE_CHECKING:  # what the Store gives

        def _holder(self, run_id: str) -> Owner | None: ...

    def state(self, run_id: str) -> State:
        """How far the run's record has come; costs microseconds, and a millisecond for 100,000 attempts."""
        return State(**self._rows(STATE, {"run": run_id})[0])

    def is_running(self, run_id: str) -> bool:
        """Whether a living process owns the run."""
        holder = self._holder(run_id)
        return holder is not None and holder.lives(time.time(), this_place())

    def paid(self, run_id: str) -> tuple[int, float]:
        """Evaluations that the run paid for, and what its models cost in USD."""
        row = self._rows(TOTALS, {"run": run_id})[0]
        return row["measured"], row["cost_usd"]

    def last_told_at(self, run_id: str) -> str | None:
        """When the newest evaluation was told (UTC, ISO 8601); None before the first."""
        rows = self._rows("SELECT told_at FROM tellings WHERE run_id = ? ORDER BY position DESC LIMIT 1", [run_id])
        return rows[0]["told_at"] if rows else None

    def summaries(self, run_id: str, position: int = 0, limit: int = -1) -> list[Evaluated]:
        """What was told from `position` on, at most `limit` of it, in order, without sources, details and logs."""
        where = "WHERE tellings.run_id = ? AND tellings.position >= ? ORDER BY tellings.position LIMIT ?"
        rows = self._rows(f"SELECT {SUMMARY} {OLDEST_FIRST} {where}", [run_id, position, limit])
        return [_summary(row) for row in rows]

    def opened_since(self, run_id: str, place: int) -> tuple[int, list[Attempt]]:
        """Attempts opened after that place of the file, as if still open, and the place of the last one."""
        return self._attempts_since(OPENED, run_id, place)

    def closed_since(self, run_id: str, place: int) -> tuple[int, list[Attempt]]:
        """Attempts closed after that place of the file, without details, and the place of the last one."""
        return self._attempts_since(CLOSED, run_id, place)

    def _attempts_since(self, sql: str, run_id: str, place: int) -> tuple[int, list[Attempt]]:
        rows = self._rows(sql, {"run": run_id, "place": place})
        places = [row.pop("place") for row in rows]
        for row in rows:
            row |= {"run_id": run_id, "mutator": sys.intern(row["mutator"])}
        return places[-1] if places else place, [attempt_of(row) for row in rows]

    def stream_turns(self, run_id: str) -> Iterator[Turn]:
        """What was said with models, in order, a page in memory at a time: prompts are long."""
        after = (-1, -1)
        while rows := self._rows(SAID, [run_id, EMBED, *after, TURNS_PAGE]):
            yield from (turn_of(row) for row in rows)
            after = rows[-1]["number"], rows[-1]["turn"]

    def stream_attempts(self, run_id: str) -> Iterator[Attempt]:
        """All attempts by number, a page in memory at a time."""
        number = -1
        while rows := self._rows(ATTEMPTS_PAGE, {"run": run_id, "number": number, "limit": PAGE}):
            yield from (attempt_of(row) for row in rows)
            number = rows[-1]["number"]

    def stream_events(self, run_id: str) -> Iterator[Event]:
        """All events, oldest first, a page in memory at a time."""
        place = 0
        while True:
            place, events = self.events_since(run_id, place, PAGE)
            if not events:
                return
            yield from events

    def events_since(self, run_id: str, place: int, limit: int = -1) -> tuple[int, list[Event]]:
        """Events with an id above `place`, oldest first, at most `limit`, and the id of the last one."""
        rows = self._rows(EVENTS_SINCE, [run_id, place, limit])
        ids = [row.pop("id") for row in rows]
        events = [Event(**row | {"fields": decode(row["fields"])}) for row in rows]
        return ids[-1] if ids else place, events

    def browse(self, run_id: str, wish: Wish, skip: int, limit: int) -> list[Evaluated]:
        """Told candidates that are wished for, as `summaries` gives them: `limit` of them after the first `skip`."""
        clauses, values = _clauses(wish)
        source = FASTEST_FIRST if wish.fastest else OLDEST_FIRST
        order = "evaluations.speedup DESC, tellings.rowid" if wish.fastest else "tellings.position DESC"
        values |= {"run": run_id, "limit": limit, "skip": skip, "below": 0}
        if wish.is_all:  # positions have no gaps: no row need be read to be skipped
            clauses.append("tellings.position < :below")
            values |= {"skip": 0, "below": self._told(run_id) - skip}
        where = " AND ".join(["tellings.run_id = :run", *clauses])
        rows = self._rows(f"SELECT {SUMMARY} {source} WHERE {where} ORDER BY {order} LIMIT :limit OFFSET :skip", values)
        return [_summary(row) for row in rows]

    def _told(self, run_id: str) -> int:
        return int(self._rows(TOLD, [run_id])[0]["told"])

    def children_of(self, candidate_id: str, limit: int = 50) -> list[str]:
        """Ids of the candidates that were made from it, by id."""
        rows = self._rows(
            "SELECT candidate_id FROM parents WHERE parent_id = ? ORDER BY candidate_id LIMIT ?", [candidate_id, limit]
        )
        return [row["candidate_id"] for row in rows]


def _clauses(wish: Wish) -> tuple[list[str], dict[str, Any]]:
    """The conditions of a wish, and their values."""
    clauses: list[str] = ["evaluations.speedup IS NOT NULL"] if wish.fastest else []
    values: dict[str, Any] = {}
    for column, value in (("verdict", wish.verdict), ("candidates.mutator", wish.mutator)):
        if value:
            name = column.rpartition(".")[2]
            clauses.append(f"{column} = :{name}")
            values[name] = value
    if wish.island is not None:
        clauses.append("candidates.island = :island")
        values["island"] = wish.island
    if wish.text:
        clauses.append(
            "(candidates.id LIKE :text ESCAPE '!' OR candidates.rationale LIKE :text ESCAPE '!' OR "
            "json_extract(document, '$.reason') LIKE :text ESCAPE '!' OR EXISTS (SELECT 1 FROM sources "
            "WHERE sources.sha256 = candidates.source_sha256 AND sources.source LIKE :text ESCAPE '!'))"
        )
        escaped = wish.text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
        values["text"] = f"%{escaped}%"
    return clauses, values


def _summary(row: Mapping[str, Any]) -> Evaluated:
    """A row of SUMMARY as a candidate without source and an evaluation without log."""
    sha256 = row["sha256"]
    verdict, reason, *found = decode(row["found"])
    known = {name: value for name, value in zip(FIELDS, found, strict=True) if value is not None}
    known |= {name: sys.intern(known[name]) for name in ALIKE if name in known} | {"source_sha256": sha256}
    for name in ("kernel_ms_ci", "speedup_ci", "labels"):
        if name in known:
            known[name] = tuple(known[name])
    candidate = Candidate(
        row["id"], row["number"], row["island"], row["generation"], sys.intern(row["backend"]), "",
        tuple(decode(row["parent_ids"])), sys.intern(row["mutator"]), row["rationale"], digests=Digests(sha256, "", ""),
    )  # fmt: skip
    return Evaluated(candidate, Evaluation(Verdict(verdict), reason, **known))
