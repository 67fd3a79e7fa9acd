"""What the store's rows mean: its longer SELECTs, and rows turned into the nouns of the population."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fitness.evaluation import Evaluation
from islands.candidate import Candidate, Digests, Evaluated
from islands.codec import decode, encode, plain
from islands.database import StoreError
from islands.run import Attempt, Run, utc_now

Key = tuple[str, ...]
"""(source_sha256, problem_sha256, device, precision, protocol[, judge]): under which an evaluation is kept.
Without a judge, or with "" for it, any judge's evaluation of that protocol is found."""

NO_FIELDS = frozenset({"document", "source_sha256", "program", "skeleton"})
"""Columns of a candidate's row that are no fields of a Candidate."""

KEY_COLUMNS = ("source_sha256", "problem_sha256", "device", "precision", "protocol", "judge")

PACKED = {"requests": ("messages",), "replies": ("text", "reasoning"), "evaluations": ("document",)}
"""Columns whose text may lie compressed in `packs`, whose key then stands in the column's `_pack`."""


def readable(table: str, column: str) -> str:
    """SQL for the full text of such a column."""
    pack = f"{table}.{column}_pack"
    body = f"(SELECT body FROM packs WHERE packs.sha256 = {pack})"
    return f"CASE WHEN {pack} IS NULL THEN {table}.{column} ELSE inflate({body}) END"


def whole(table: str) -> str:
    """SELECT of a table's rows with their full texts; of columns that come twice, the last one holds."""
    texts = "".join(f", {readable(table, column)} AS {column}" for column in PACKED.get(table, ()))
    return f"SELECT {table}.*{texts} FROM {table}"


CANDIDATE_COLUMNS = """
    candidates.id, candidates.number, candidates.island, candidates.generation, candidates.backend,
    sources.source, candidates.mutator, candidates.rationale, candidates.details,
    candidates.source_sha256, fingerprints.program, fingerprints.skeleton,
    (SELECT json_group_array(parent_id) FROM
        (SELECT parent_id FROM parents WHERE candidate_id = candidates.id ORDER BY position)) AS parent_ids
"""

DIGESTED = """
    JOIN sources ON sources.sha256 = candidates.source_sha256
    LEFT JOIN fingerprints ON fingerprints.source_sha256 = candidates.source_sha256 AND scheme = novelty_scheme()
"""

CANDIDATES = f"""
    SELECT {CANDIDATE_COLUMNS} FROM candidates {DIGESTED}
"""

TOLD = f"""
    SELECT {CANDIDATE_COLUMNS}, {readable("evaluations", "document")} AS document FROM tellings
    JOIN evaluations ON evaluations.id = tellings.evaluation_id
    JOIN candidates ON candidates.id = tellings.candidate_id
    {DIGESTED}
"""

TOP = f"""
    {TOLD} WHERE tellings.rowid IN (
        SELECT tellings.rowid FROM evaluations INDEXED BY evaluations_by_speedup
        CROSS JOIN tellings ON tellings.evaluation_id = evaluations.id
        WHERE evaluations.speedup IS NOT NULL
          AND (:problem IS NULL
            OR evaluations.problem_sha256 IN (SELECT problem_sha256 FROM runs WHERE problem_id = :problem))
          AND NOT EXISTS (
            SELECT 1 FROM tellings AS earlier
            WHERE earlier.evaluation_id = tellings.evaluation_id AND earlier.rowid < tellings.rowid)
        ORDER BY evaluations.speedup DESC, tellings.rowid LIMIT :limit)
    ORDER BY evaluations.speedup DESC, tellings.rowid
"""
"""The inner SELECT walks an index and reads no document; the outer one reads the few that it found."""

TOLD_AT = "SELECT told_at FROM tellings WHERE run_id = :run ORDER BY position"

RUNS = """
    SELECT runs.*, problems.source AS problem_source FROM runs
    JOIN problems ON problems.sha256 = runs.problem_sha256
"""

_ATTEMPTS = """
    SELECT attempts.run_id, attempts.number, island, coalesce(outcomes.mutator, attempts.mutator) AS mutator,
        parent_ids, opened_at, outcome, coalesce(reason, '') AS reason, coalesce(rationale, '') AS rationale,
        coalesce(usage, '{}') AS usage, coalesce(details, '{}') AS details, closed_at
    FROM attempts LEFT JOIN outcomes USING (run_id, number) WHERE attempts.run_id = :run
"""

ATTEMPTS = f"{_ATTEMPTS} ORDER BY number"

ATTEMPTS_PAGE = f"{_ATTEMPTS} AND attempts.number > :number ORDER BY number LIMIT :limit"

NEXT_NUMBER = """
    SELECT max(coalesce((SELECT max(number) FROM attempts WHERE run_id = :run), -1),
               coalesce((SELECT max(number) FROM candidates WHERE run_id = :run), -1)) + 1 AS number
"""

OUTCOME_COUNTS = """
    SELECT coalesce(outcome, 'open') AS name, count(*) AS n FROM attempts
    LEFT JOIN outcomes USING (run_id, number) WHERE attempts.run_id = :run GROUP BY 1 ORDER BY 1
"""

VERDICT_COUNTS = """
    SELECT verdict AS name, count(*) AS n FROM tellings JOIN evaluations ON evaluations.id = evaluation_id
    WHERE tellings.run_id = :run GROUP BY 1 ORDER BY 1
"""

TOTALS = """
    SELECT (SELECT count(*) FROM candidates WHERE run_id = :run) AS candidates,
        (SELECT count(*) FROM evaluations WHERE run_id = :run) AS measured,
        coalesce(sum(json_extract(usage, '$.prompt_tokens')), 0) AS prompt_tokens,
        coalesce(sum(json_extract(usage, '$.completion_tokens')), 0) AS completion_tokens,
        coalesce(sum(json_extract(usage, '$.cost_usd')), 0.0) AS cost_usd
    FROM (SELECT run_id, usage FROM replies UNION ALL SELECT run_id, usage FROM model_failures UNION ALL
        SELECT run_id, usage FROM outcomes WHERE NOT EXISTS
            (SELECT 1 FROM requests WHERE requests.run_id = outcomes.run_id AND requests.number = outcomes.number))
    WHERE run_id = :run
"""


def full_key(key: Key, judge: str) -> Key:
    """`key` with six parts, `judge` standing in for one that is not given. StoreError for another length."""
    if len(key) not in (len(KEY_COLUMNS) - 1, len(KEY_COLUMNS)):
        raise StoreError(f"an evaluation's key is ({', '.join(KEY_COLUMNS[:-1])}[, judge]), found {key!r}")
    return key if len(key) == len(KEY_COLUMNS) and key[-1] else (*key[: len(KEY_COLUMNS) - 1], judge)


def run_of(row: Mapping[str, Any]) -> Run:
    """The run of a row of RUNS."""
    known = {name: value for name, value in row.items() if name != "checksum"}
    return Run(**{**known, "config": decode(row["config"]), "budget": decode(row["budget"])})


def attempt_of(row: Mapping[str, Any]) -> Attempt:
    """The attempt of a row of ATTEMPTS."""
    decoded = {name: decode(row[name]) for name in ("usage", "details")}
    return Attempt(**{**row, **decoded, "parent_ids": tuple(decode(row["parent_ids"]))})


def row_of(run_id: str, candidate: Candidate, source_sha256: str) -> dict[str, Any]:
    """The row of a candidate that is added now; its source and parents go to their own tables."""
    return {
        "id": candidate.id,
        "run_id": run_id,
        "number": candidate.number,
        "island": candidate.island,
        "generation": candidate.generation,
        "backend": candidate.backend,
        "source_sha256": source_sha256,
        "mutator": plain(candidate.mutator),
        "rationale": plain(candidate.rationale),
        "details": encode(candidate.details),
        "added_at": utc_now(),
    }


def mapping_of(usage: Any) -> dict[str, Any]:
    """The fields of a dataclass, a mapping's items, or nothing for None."""
    if dataclasses.is_dataclass(usage) and not isinstance(usage, type):
        return dataclasses.asdict(usage)
    return dict(usage or {})


def candidate_of(row: Mapping[str, Any]) -> Candidate:
    """The candidate of a row that has CANDIDATE_COLUMNS."""
    columns = {name: value for name, value in row.items() if name not in NO_FIELDS}
    decoded = {"parent_ids": tuple(decode(row["parent_ids"])), "details": decode(row["details"])}
    program, skeleton = row["program"], row["skeleton"]
    digests = Digests(row["source_sha256"], program, skeleton) if program else None
    return Candidate(**{**columns, **decoded}, digests=digests)


def evaluated_of(row: Mapping[str, Any]) -> Evaluated:
    """The candidate of a row of TOLD, with its evaluation."""
    return Evaluated(candidate_of(row), Evaluation.from_json(decode(row["document"])))
