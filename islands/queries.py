"""Questions to a store that lists and pages ask, answered by SQL and not by reading a whole history.

Who is the elite is a fold over a run's record all the same (`record`): the same as bouts.recorded, but it reads of the
told candidates only the speedup, and of those that can still matter the rest.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from fitness.evaluation import Evaluation
from islands.archive import ENERGY, Objectives, covers, numbers
from islands.bouts import BOUT, Record, record_of
from islands.candidate import DUPLICATE_OF, Evaluated
from islands.codec import decode, encode
from islands.duels import Throne
from islands.lease import BEAT_EVERY_S, Owner, this_place
from islands.records import TOLD, TOTALS, evaluated_of
from islands.run import Run

if TYPE_CHECKING:
    from islands.store import Store

SILENT_S = 4 * BEAT_EVERY_S
"""A living owner whose heartbeat is older than this hangs, or its disk does."""

SPEEDUPS = "SELECT id, speedup FROM evaluations INDEXED BY evaluations_by_speedup WHERE speedup IS NOT NULL"
"""Of the whole file: reads an index and no document."""

TOLD_IDS = "SELECT position, evaluation_id FROM tellings WHERE run_id = ? ORDER BY position"

CORRECT = """
    FROM evaluations CROSS JOIN tellings ON tellings.evaluation_id = evaluations.id
    WHERE evaluations.id IN (SELECT id FROM evaluations INDEXED BY evaluations_by_speedup WHERE speedup IS NOT NULL)
        AND tellings.run_id = ?
"""
"""Known by the index, but read in the file's own order, which is half as dear as in that of their speedups."""

FIGURES = f"""
    SELECT tellings.position, tellings.candidate_id, evaluations.source_sha256,
        json_extract(document, '$.kernel_ms') AS kernel_ms, json_extract(document, '$.peak_mem_bytes') AS memory,
        json_extract(document, '$.error_ratio') AS error_ratio, json_extract(document, '$.features.{ENERGY}') AS energy
    {CORRECT}
"""

CORRECT_SOURCES = f"SELECT count(DISTINCT evaluations.source_sha256) AS n {CORRECT}"

TOLD_SOURCES = """
    SELECT tellings.position, tellings.candidate_id, evaluations.source_sha256
    FROM evaluations CROSS JOIN tellings ON tellings.evaluation_id = evaluations.id
    WHERE evaluations.source_sha256 IN (SELECT value FROM json_each(?)) AND +tellings.run_id = ?
"""

BEFORE = f"""
    SELECT 1 FROM evaluations CROSS JOIN tellings ON tellings.evaluation_id = evaluations.id
    WHERE evaluations.source_sha256 = ? AND +evaluations.speedup IS NOT NULL
        AND json_extract(evaluations.document, '$.features.{DUPLICATE_OF}') IS NULL
        AND +tellings.run_id = ? AND +tellings.position < ? LIMIT 1
"""

LAST_PART = """
    SELECT kind, at, CASE kind WHEN 'stopped' THEN fields ELSE '{}' END AS fields FROM events
    WHERE run_id = ? AND kind IN ('started', 'stopped') ORDER BY id DESC LIMIT 1
"""

TIMES = """
    SELECT opened_at, closed_at, added_at, told_at, coalesce(usage, '{}') AS usage FROM candidates
    LEFT JOIN attempts ON attempts.run_id = candidates.run_id AND attempts.number = candidates.number
    LEFT JOIN outcomes ON outcomes.run_id = candidates.run_id AND outcomes.number = candidates.number
    LEFT JOIN tellings ON tellings.candidate_id = candidates.id WHERE candidates.id = ?
"""

LINE = """
    WITH RECURSIVE line (id, depth) AS (
        SELECT :id, 0
        UNION ALL SELECT parent_id, depth + 1 FROM line JOIN parents ON candidate_id = line.id AND position = 0
        LIMIT 10000)
    SELECT id FROM line ORDER BY depth DESC
"""

TOLD_WHEN = """
    SELECT told_at, evaluations.run_id = tellings.run_id AND NOT EXISTS (
        SELECT 1 FROM tellings AS earlier WHERE earlier.evaluation_id = tellings.evaluation_id
            AND earlier.run_id = tellings.run_id AND earlier.position < tellings.position) AS is_paid
    FROM tellings JOIN evaluations ON evaluations.id = evaluation_id
    WHERE tellings.run_id = ? AND tellings.position >= ? ORDER BY tellings.position LIMIT ?
"""

BOUTS_SINCE = "SELECT id, fields FROM events WHERE run_id = ? AND id > ? AND kind = ? ORDER BY id"

PAID = """
    SELECT at, json_extract(usage, '$.cost_usd') AS usd FROM (
        SELECT run_id, usage, at FROM replies UNION ALL SELECT run_id, usage, at FROM model_failures UNION ALL
        SELECT run_id, usage, closed_at AS at FROM outcomes WHERE NOT EXISTS
            (SELECT 1 FROM requests WHERE requests.run_id = outcomes.run_id AND requests.number = outcomes.number))
    WHERE run_id = :run AND at > :after AND at <= :until AND usd > 0 ORDER BY at
"""

ENDED = {"budget": "done", "exhausted": "done", "interrupted": "stopped"}
"""Status by why a run's last part stopped; any other reason is a failure."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether somebody works on a run, and how its last part ended."""

    status: str
    """`alive`; `silent`: its owner lives but its heartbeat is old; `done`, `stopped` by a person, `failed`; `dead`: its
    process is gone without a word."""
    since: str
    """When its last part began or ended, UTC; the run's own start where it never did either."""
    reason: str = ""
    """Why it stopped, in a sentence."""
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """When a candidate was asked for, proposed, recorded and told, UTC; None where it was not."""

    opened_at: str | None
    closed_at: str | None
    added_at: str
    told_at: str | None
    usage: dict[str, Any]
    """What its attempt cost."""


@dataclass(frozen=True, slots=True)
class Telling:
    """A member of a history."""

    evaluated: Evaluated
    told_at: str
    """UTC."""
    is_paid: bool
    """Its evaluation was made for this run, and nobody of the run was told it before."""


def record(store: Store, run_id: str) -> Record:
    """The record of a run (bouts.recorded), from its speedups and the few candidates that can matter."""
    return records(store, [run_id])[run_id]


def records(store: Store, run_ids: Sequence[str]) -> dict[str, Record]:
    """The records of several runs by id: the speedups of the file are read once for all of them."""
    told = {run_id: _pairs(store, TOLD_IDS, [run_id]) for run_id in run_ids}
    speedups = dict(_pairs(store, SPEEDUPS))  # after `told`: what a search tells meanwhile is of no place yet
    return {
        run_id: _record(store, run_id, [(position, speedups[id]) for position, id in places if id in speedups])
        for run_id, places in told.items()
    }


def _pairs(store: Store, sql: str, values: Sequence[Any] = ()) -> list[Any]:
    """Rows as tuples: of a hundred thousand, dictionaries would cost more than the reading."""
    with store._lock, store._ours():
        return store._db.execute(sql, values).fetchall()


def _record(store: Store, run_id: str, told: Iterable[tuple[int, float]]) -> Record:
    """`told` are places in the history and speedups of what was told correct, in order."""
    again: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in store._rows("SELECT fields FROM events WHERE run_id = ? AND kind = ? ORDER BY id", [run_id, BOUT]):
        fields = decode(row["fields"])
        again[fields["after"]].append(fields)
    throne, estimates = Throne(0), dict[str, Evaluation]()

    def retell(after: int) -> None:
        for fields in again.pop(after, ()):
            (known,) = store.told_of([fields["candidate"]])
            found = Evaluated(known.candidate, Evaluation.from_json(fields["evaluation"]))
            amended = throne.retell(found, after)
            estimates[amended.evaluation.source_sha256] = amended.evaluation

    bound, due = 0.0, min(again, default=-1)
    for position, speedup in told:
        while 0 <= due <= position:
            retell(due)
            bound, due = throne.overlooked_below(), min(again, default=-1)
        if speedup >= bound and (evaluated := _first_told(store, run_id, position)) is not None:
            throne.tell(evaluated, position)
            bound = throne.overlooked_below()
    for after in sorted(again):
        retell(after)
    return record_of(throne, estimates)


def _first_told(store: Store, run_id: str, position: int) -> Evaluated | None:
    """What was told at a place of the history; None where the run was told the same program before."""
    place = [run_id, position]
    evaluated = evaluated_of(store._rows(f"{TOLD} WHERE tellings.run_id = ? AND tellings.position = ?", place)[0])
    return None if store._rows(BEFORE, [evaluated.evaluation.source_sha256, *place]) else evaluated


def front(store: Store, run_id: str, known: Record) -> list[str]:
    """Ids of the run's Pareto front (archive.pareto) by the estimates that count now, in the order told.

    Reads four figures of each correct candidate and nothing else.
    """
    found = [
        (numbers(row["kernel_ms"], row["memory"], row["error_ratio"], row["energy"]), *_place(row))
        for row in store._rows(FIGURES, [run_id])
        if row["source_sha256"] not in known.estimates
    ]
    for row in store._rows(TOLD_SOURCES, [encode(list(known.estimates)), run_id]):
        estimate = known.estimates[row["source_sha256"]]
        if estimate.is_correct:
            energy = estimate.features.get(ENERGY)
            figures = numbers(estimate.kernel_ms, estimate.peak_mem_bytes, estimate.error_ratio, energy)
            found.append((figures, *_place(row)))
    members: list[tuple[Objectives, int, str]] = []
    for one in sorted(found):  # who covers another one stands before it
        if not any(covers(member[0], one[0]) for member in members):
            members.append(one)
    return [candidate_id for _, _, candidate_id in sorted(members, key=itemgetter(1))]


def _place(row: dict[str, Any]) -> tuple[int, str]:
    return row["position"], row["candidate_id"]


def correct_sources(store: Store, run_id: str) -> int:
    """How many different programs of the run were told correct."""
    return int(store._rows(CORRECT_SOURCES, [run_id])[0]["n"])


def health(store: Store, run: Run, now_s: float | None = None) -> Health:
    """Whether somebody works on the run; `now_s` in seconds since the epoch."""
    now_s = time.time() if now_s is None else now_s
    parts, owner = store._rows(LAST_PART, [run.id]), store._holder(run.id)
    part = parts[0] if parts else {"kind": "started", "at": run.started_at, "fields": "{}"}
    if owner is not None and owner.lives(now_s, this_place()):
        return Health("alive" if now_s - owner.beat_at < SILENT_S else "silent", part["at"], owner=owner)
    if part["kind"] == "started":
        return Health("dead", part["at"], "its process ended without a word; the same command goes on", owner)
    fields = decode(part["fields"])
    return Health(ENDED.get(fields["stop"], "failed"), part["at"], fields["reason"])


def totals(store: Store, run_id: str) -> dict[str, Any]:
    """`candidates`, `measured`, `prompt_tokens`, `completion_tokens` and `cost_usd` of a run."""
    return store._rows(TOTALS, {"run": run_id})[0]


def told_since(store: Store, run_id: str, position: int, limit: int) -> list[Telling]:
    """At most `limit` members of the history from `position` on."""
    place = f"{TOLD} WHERE tellings.run_id = ? AND tellings.position >= ? ORDER BY tellings.position LIMIT ?"
    told = [evaluated_of(row) for row in store._rows(place, [run_id, position, limit])]
    when = store._rows(TOLD_WHEN, [run_id, position, len(told)])
    return [Telling(one, row["told_at"], bool(row["is_paid"])) for one, row in zip(told, when, strict=True)]


def bouts_since(store: Store, run_id: str, event: int) -> list[tuple[int, dict[str, Any]]]:
    """Fresh measurements of told candidates (bouts.bout_fields) whose events have an id above `event`, each with it."""
    return [(row["id"], decode(row["fields"])) for row in store._rows(BOUTS_SINCE, [run_id, event, BOUT])]


def paid_between(store: Store, run_id: str, after: str, until: str) -> list[tuple[str, float]]:
    """When the run paid and how much (USD), of payments later than `after` and not later than `until` (UTC)."""
    rows = store._rows(PAID, {"run": run_id, "after": after, "until": until})
    return [(row["at"], row["usd"]) for row in rows]


def times_of(store: Store, candidate_id: str) -> Times | None:
    """When what happened to the candidate; None when it is unknown."""
    rows = store._rows(TIMES, [candidate_id])
    return Times(**{**rows[0], "usage": decode(rows[0]["usage"])}) if rows else None


def lineage(store: Store, candidate_id: str) -> list[Evaluated]:
    """The candidate's told ancestors through first parents, oldest first, itself last."""
    ids = [row["id"] for row in store._rows(LINE, {"id": candidate_id})]
    told = {one.candidate.id: one for one in store.told_of(ids)}
    return [told[one] for one in ids if one in told]
