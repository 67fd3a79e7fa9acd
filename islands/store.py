"""The store: one SQLite file that remembers every run. Only this module queries or writes it.

Every method that writes is one transaction: when it returns, its record is on the disk; when it raises, nothing
of it is. Records are appended and never changed (triggers in migrations.py refuse it), and uniqueness constraints
make it impossible to count an attempt, a candidate or a told evaluation twice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.codec import decode, encode, plain
from islands.database import StoreError, connect, immediate, translated
from islands.lease import STALE_S, Lease, Owner, this_place
from islands.run import OUTCOMES, Attempt, Counts, Event, Run, utc_now

__all__ = ["Store", "StoreError", "open_store"]

Key = tuple[str, ...]
"""(source_sha256, problem_sha256, device, precision, protocol[, judge]): under which an evaluation is kept.
Without a judge, or with "" for it, any judge's evaluation of that protocol is found."""

CANDIDATE = """
    candidates.id, candidates.number, candidates.island, candidates.generation, candidates.backend,
    sources.source, candidates.mutator, candidates.rationale, candidates.details,
    (SELECT json_group_array(parent_id) FROM
        (SELECT parent_id FROM parents WHERE candidate_id = candidates.id ORDER BY position)) AS parent_ids
"""

CANDIDATES = "candidates JOIN sources ON sources.sha256 = candidates.source_sha256"

TOLD = f"""
    SELECT {CANDIDATE}, evaluations.document FROM tellings
    JOIN evaluations ON evaluations.id = tellings.evaluation_id
    JOIN candidates ON candidates.id = tellings.candidate_id
    JOIN sources ON sources.sha256 = candidates.source_sha256
"""

TOP = f"""
    {TOLD} JOIN runs ON runs.id = candidates.run_id
    WHERE evaluations.speedup IS NOT NULL AND (:problem IS NULL OR runs.problem_id = :problem)
      AND NOT EXISTS (
        SELECT 1 FROM tellings AS earlier
        WHERE earlier.evaluation_id = tellings.evaluation_id AND earlier.rowid < tellings.rowid)
    ORDER BY evaluations.speedup DESC, tellings.rowid LIMIT :limit
"""


def open_store(path: str | Path, read_only: bool = False) -> Store:
    """The store in the file `path`, created or migrated in place where needed.

    With `read_only` the file must exist and may be written by another process meanwhile. Raises StoreError for
    a file that is corrupt, not ours, from a newer version, not writable, or on a network file system.
    """
    return Store(Path(path), connect(Path(path), read_only), read_only)


class Store:
    """One open database file; usable from several threads of the process that opened it."""

    def __init__(self, path: Path, db: Any, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._db = db
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._tokens: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; the last one to close it folds the write-ahead log into it."""
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes several writes one: all of them are kept, or, when the block raises, none."""
        with self._lock, self._ours():
            if self._db.conn.in_transaction:
                yield
                return
            with immediate(self._db):
                yield

    def check(self) -> list[str]:
        """What SQLite's full integrity and foreign key checks find; empty when all is well."""
        found = [row["integrity_check"] for row in self._rows("PRAGMA integrity_check")]
        broken = self._rows("PRAGMA foreign_key_check")
        return [text for text in found if text != "ok"] + [
            f"row {row['rowid']} of {row['table']} refers to a missing row of {row['parent']}" for row in broken
        ]

    # Runs

    def create_run(self, run: Run) -> None:
        """Records a run. StoreError when its id or name is taken, or its problem's sha256 does not fit."""
        found = hashlib.sha256(run.problem_source.encode()).hexdigest()
        if found != run.problem_sha256:
            raise StoreError(
                f"run {run.name}: problem_sha256 is {run.problem_sha256}, its source has {found}. "
                f"Load the problem again and use Problem.sha256."
            )
        with self._write(f"create run {run.name} ({run.id})"):
            self._append_source("problems", run.problem_sha256, run.problem_source)
            values = dataclasses.asdict(run)
            del values["problem_source"]
            self._insert("runs", values | {"config": encode(run.config), "budget": encode(run.budget)})

    def find_run(self, name_or_id: str) -> Run | None:
        """The run of that id, else of that name, else None."""
        rows = self._runs("WHERE runs.id = :it OR name = :it ORDER BY runs.id = :it DESC", {"it": name_or_id})
        return rows[0] if rows else None

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return self._runs("ORDER BY started_at, runs.rowid", {})

    def _runs(self, clause: str, values: dict[str, Any]) -> list[Run]:
        rows = self._rows(
            "SELECT runs.*, problems.source AS problem_source FROM runs "
            f"JOIN problems ON problems.sha256 = runs.problem_sha256 {clause}",
            values,
        )
        return [Run(**row | {"config": decode(row["config"]), "budget": decode(row["budget"])}) for row in rows]

    # Attempts

    def open_attempt(
        self, run_id: str, number: int, island: int, mutator: str, parent_ids: tuple[str, ...] = ()
    ) -> None:
        """Records the intent before the work."""
        values = {"run_id": run_id, "number": number, "island": island, "mutator": plain(mutator)}
        with self._write(f"open attempt {number} of run {run_id}", run_id):
            self._insert("attempts", values | {"parent_ids": encode(parent_ids), "opened_at": utc_now()})

    def close_attempt(
        self,
        run_id: str,
        number: int,
        outcome: str,
        reason: str = "",
        usage: Any = None,
        details: Mapping[str, Any] | None = None,
        mutator: str | None = None,
        rationale: str = "",
    ) -> None:
        """Records how an open attempt ended and what it cost.

        `usage` is a mapping or a dataclass; `mutator` replaces the one named at opening. StoreError when the
        attempt was never opened or is already closed.
        """
        if outcome not in OUTCOMES:
            raise StoreError(f"outcome of attempt {number} must be one of {', '.join(OUTCOMES)}, found {outcome!r}")
        spent = dataclasses.asdict(usage) if dataclasses.is_dataclass(usage) else dict(usage or {})  # type: ignore[arg-type]
        values = {
            "run_id": run_id,
            "number": number,
            "outcome": outcome,
            "reason": plain(reason),
            "mutator": None if mutator is None else plain(mutator),
            "rationale": plain(rationale),
            "usage": encode(spent),
            "details": encode(dict(details or {})),
            "closed_at": utc_now(),
        }
        with self._write(f"close attempt {number} of run {run_id}", run_id):
            self._insert("outcomes", values)

    def attempts(self, run_id: str) -> list[Attempt]:
        """All attempts by number; those still open have no outcome."""
        rows = self._rows(
            "SELECT attempts.run_id, attempts.number, island, coalesce(outcomes.mutator, attempts.mutator) AS mutator, "
            "parent_ids, opened_at, outcome, coalesce(reason, '') AS reason, coalesce(rationale, '') AS rationale, "
            "coalesce(usage, '{}') AS usage, coalesce(details, '{}') AS details, closed_at "
            "FROM attempts LEFT JOIN outcomes USING (run_id, number) WHERE attempts.run_id = ? ORDER BY number",
            [run_id],
        )
        return [
            Attempt(
                **row
                | {"parent_ids": tuple(decode(row["parent_ids"]))}
                | {"usage": decode(row["usage"]), "details": decode(row["details"])}
            )
            for row in rows
        ]

    def next_number(self, run_id: str) -> int:
        """One more than the highest number that an attempt or a candidate of the run has used; 0 at first."""
        rows = self._rows(
            "SELECT max(coalesce((SELECT max(number) FROM attempts WHERE run_id = :run), -1), "
            "coalesce((SELECT max(number) FROM candidates WHERE run_id = :run), -1)) + 1 AS number",
            {"run": run_id},
        )
        return int(rows[0]["number"])

    # Candidates and evaluations

    def add_candidate(self, run_id: str, candidate: Candidate) -> None:
        """Records a candidate before it is built. StoreError when its number is taken or a parent unknown."""
        try:
            sha256 = candidate.source_sha256
        except UnicodeEncodeError as error:
            raise StoreError(f"source of candidate {candidate.id} is not valid Unicode: {error}. Refuse it.") from error
        values = {
            "id": candidate.id,
            "run_id": run_id,
            "number": candidate.number,
            "island": candidate.island,
            "generation": candidate.generation,
            "backend": candidate.backend,
            "source_sha256": sha256,
            "mutator": plain(candidate.mutator),
            "rationale": plain(candidate.rationale),
            "details": encode(candidate.details),
            "added_at": utc_now(),
        }
        with self._write(f"add candidate {candidate.id}", run_id):
            self._append_source("sources", sha256, candidate.source)
            self._insert("candidates", values)
            for position, parent_id in enumerate(candidate.parent_ids):
                row = {"candidate_id": candidate.id, "position": position, "parent_id": parent_id}
                self._insert("parents", row)

    def add_evaluation(self, run_id: str, candidate_id: str, evaluation: Evaluation, key: Key) -> None:
        """Tells a candidate its evaluation: this fixes its place in the run's history.

        The same evaluation under the same key is kept once, whoever is told it. StoreError when the candidate is
        unknown, was told before, or has another source than the key or the evaluation.
        """
        with self._write(f"tell candidate {candidate_id} its evaluation", run_id):
            self._refuse_foreign(run_id, candidate_id, evaluation, key)
            told = self._rows("SELECT coalesce(max(position) + 1, 0) AS n FROM tellings WHERE run_id = ?", [run_id])
            values = {"run_id": run_id, "position": told[0]["n"], "candidate_id": candidate_id}
            evaluation_id = self._append_evaluation(run_id, evaluation, key)
            self._insert("tellings", values | {"evaluation_id": evaluation_id, "told_at": utc_now()})

    def _refuse_foreign(self, run_id: str, candidate_id: str, evaluation: Evaluation, key: Key) -> None:
        rows = self._rows(
            "SELECT source_sha256, problem_sha256 FROM candidates JOIN runs ON runs.id = candidates.run_id "
            "WHERE candidates.id = ? AND runs.id = ?",
            [candidate_id, run_id],
        )
        if not rows:
            raise StoreError(f"run {run_id} in {self.path} has no candidate {candidate_id}. Add it before telling.")
        expected = (rows[0]["source_sha256"], rows[0]["problem_sha256"])
        if expected != tuple(key[:2]) or evaluation.source_sha256 != expected[0]:
            raise StoreError(
                f"evaluation for candidate {candidate_id} belongs to another program: expected source and problem "
                f"{expected}, found key {tuple(key[:2])} and evaluated source {evaluation.source_sha256}."
            )

    def _append_evaluation(self, run_id: str, evaluation: Evaluation, key: Key) -> int:
        columns = dict(zip(KEY_COLUMNS, _full_key(key, evaluation.judge_sha256), strict=True))
        document = encode(dataclasses.asdict(evaluation))
        values = columns | {"document_sha256": hashlib.sha256(document.encode()).hexdigest()}
        same = " AND ".join(f"{name} = :{name}" for name in values)
        rows = self._rows(f"SELECT id FROM evaluations WHERE {same}", values)
        if rows:
            return int(rows[0]["id"])
        return self._insert(
            "evaluations", values | {"run_id": run_id, "document": document, "evaluated_at": utc_now()}
        )

    def find_evaluation(self, key: Key) -> Evaluation | None:
        """The newest evaluation under `key` in any run of the file, or None.

        One without a verdict is never found: the noise that prevented it must not become permanent.
        """
        names = KEY_COLUMNS if len(key) == len(KEY_COLUMNS) and key[-1] else KEY_COLUMNS[:-1]
        where = " AND ".join(f"{name} = ?" for name in names)
        rows = self._rows(
            f"SELECT document FROM evaluations WHERE {where} AND verdict <> '{Verdict.NO_VERDICT}' "
            "ORDER BY id DESC LIMIT 1",
            list(_full_key(key, "")[: len(names)]),
        )
        return Evaluation.from_json(decode(rows[0]["document"])) if rows else None

    def history(self, run_id: str) -> list[Evaluated]:
        """Every told candidate with its evaluation, in the order told."""
        rows = self._rows(f"{TOLD} WHERE tellings.run_id = ? ORDER BY tellings.position", [run_id])
        return [_evaluated(row) for row in rows]

    def pending(self, run_id: str) -> list[Candidate]:
        """Candidates that are recorded but not told, by number: what a resumed run builds again."""
        rows = self._rows(
            f"SELECT {CANDIDATE} FROM {CANDIDATES} WHERE run_id = ? "
            "AND NOT EXISTS (SELECT 1 FROM tellings WHERE candidate_id = candidates.id) ORDER BY number",
            [run_id],
        )
        return [_candidate(row) for row in rows]

    def find_candidate(self, id_or_prefix: str) -> Candidate | None:
        """The candidate of that id, or the only one whose id begins so; StoreError when there are several."""
        rows = self._rows(
            f"SELECT {CANDIDATE} FROM {CANDIDATES} WHERE candidates.id >= :low AND candidates.id < :high "
            "ORDER BY candidates.id LIMIT 4",
            {"low": id_or_prefix, "high": id_or_prefix + "\U0010ffff"},
        )
        if len(rows) > 1 and rows[0]["id"] != id_or_prefix:
            several = ", ".join(row["id"] for row in rows)
            raise StoreError(f"several candidates begin with {id_or_prefix!r}: {several}, ... Give more of the id.")
        return _candidate(rows[0]) if rows else None

    def evaluated(self, candidate_id: str) -> Evaluated | None:
        """The candidate with what it was told; None when it is unknown or not told yet."""
        rows = self._rows(f"{TOLD} WHERE candidates.id = ?", [candidate_id])
        return _evaluated(rows[0]) if rows else None

    def top(self, problem_id: str | None = None, limit: int = 10) -> list[Evaluated]:
        """The correct candidates of highest median speedup, over all runs (of one problem); each evaluation once."""
        return [_evaluated(row) for row in self._rows(TOP, {"problem": problem_id, "limit": limit})]

    def counts(self, run_id: str) -> Counts:
        """What the run holds, counted by the database."""
        of_run = {"run": run_id}
        attempts = self._rows(
            "SELECT coalesce(outcome, 'open') AS name, count(*) AS n FROM attempts "
            "LEFT JOIN outcomes USING (run_id, number) WHERE attempts.run_id = :run GROUP BY 1 ORDER BY 1",
            of_run,
        )
        verdicts = self._rows(
            "SELECT verdict AS name, count(*) AS n FROM tellings JOIN evaluations ON evaluations.id = evaluation_id "
            "WHERE tellings.run_id = :run GROUP BY 1 ORDER BY 1",
            of_run,
        )
        totals = self._rows(
            "SELECT (SELECT count(*) FROM candidates WHERE run_id = :run) AS candidates, "
            "(SELECT count(*) FROM evaluations WHERE run_id = :run) AS measured, "
            "coalesce(sum(json_extract(usage, '$.prompt_tokens')), 0) AS prompt_tokens, "
            "coalesce(sum(json_extract(usage, '$.completion_tokens')), 0) AS completion_tokens, "
            "coalesce(sum(json_extract(usage, '$.cost_usd')), 0.0) AS cost_usd FROM outcomes WHERE run_id = :run",
            of_run,
        )
        told = {row["name"]: row["n"] for row in verdicts}
        return Counts({row["name"]: row["n"] for row in attempts}, told, told=sum(told.values()), **totals[0])

    # Events

    def add_event(self, run_id: str, kind: str, fields: Mapping[str, Any]) -> None:
        """Records something that is neither an attempt nor an evaluation."""
        with self._write(f"add event {kind} to run {run_id}", run_id):
            row = {"run_id": run_id, "kind": kind, "fields": encode(dict(fields)), "at": utc_now()}
            self._insert("events", row)

    def events(self, run_id: str) -> list[Event]:
        """All events, oldest first."""
        rows = self._rows("SELECT run_id, kind, fields, at FROM events WHERE run_id = ? ORDER BY id", [run_id])
        return [Event(**row | {"fields": decode(row["fields"])}) for row in rows]

    # Leases

    def lease(self, run_id: str) -> Lease:
        """Ownership of the run, for a `with` block; while it is held, writes to the run by others are theirs to
        refuse, and ours are refused once another process has taken the run over."""
        return Lease(self, run_id)

    def take_lease(self, run_id: str, owner: Owner) -> None:
        """Makes `owner` the run's owner. StoreError when another one lives."""
        with self._write(f"lease run {run_id}"):
            holder = self._holder(run_id)
            if holder and holder.lives(time.time(), this_place()):
                raise StoreError(_held(run_id, self.path, holder))
            self._db.execute("DELETE FROM leases WHERE run_id = ?", [run_id])
            self._insert("leases", {"run_id": run_id} | dataclasses.asdict(owner))
        self._tokens[run_id] = owner.token

    def beat_lease(self, run_id: str) -> None:
        """Renews the heartbeat. StoreError when another process has taken the run over."""
        with self._write(f"renew the lease of run {run_id}", run_id):
            self._db.execute("UPDATE leases SET beat_at = ? WHERE run_id = ?", [time.time(), run_id])

    def release_lease(self, run_id: str) -> None:
        """Gives the run back, unless another process has taken it over."""
        token = self._tokens.pop(run_id, None)
        with self._write(f"release run {run_id}"):
            self._db.execute("DELETE FROM leases WHERE run_id = ? AND token = ?", [run_id, token])

    def _holder(self, run_id: str) -> Owner | None:
        rows = self._rows(
            "SELECT pid, process_started, place, host, token, beat_at FROM leases WHERE run_id = ?", [run_id]
        )
        return Owner(**rows[0]) if rows else None

    def _refuse_lost_lease(self, run_id: str) -> None:
        token = self._tokens.get(run_id)
        if token is None:
            return
        holder = self._holder(run_id)
        if holder is None or holder.token != token:
            by = f"pid {holder.pid} on {holder.host}" if holder else "nobody"
            raise StoreError(
                f"this process no longer owns run {run_id} in {self.path}: its heartbeat was silent for more than "
                f"{STALE_S:.0f} s, and the run is now held by {by}. Nothing was written; run the same command later."
            )

    # Rows

    @contextmanager
    def _ours(self) -> Iterator[None]:
        if os.getpid() != self._pid:
            raise StoreError(f"{self.path} was opened by process {self._pid}. Open it again after a fork.")
        with translated(self.path):
            yield

    @contextmanager
    def _write(self, what: str, run_id: str | None = None) -> Iterator[None]:
        if self.read_only:
            raise StoreError(f"cannot {what}: {self.path} was opened read-only. Open it for writing.")
        try:
            with self.transaction():
                if run_id is not None:
                    self._refuse_lost_lease(run_id)
                yield
        except sqlite3.IntegrityError as error:
            raise StoreError(f"cannot {what} in {self.path}: {error}: {_broken(error)}") from error

    def _rows(self, sql: str, values: Any = ()) -> list[dict[str, Any]]:
        with self._lock, self._ours():
            cursor = self._db.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def _insert(self, table: str, values: Mapping[str, Any]) -> int:
        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        return int(self._db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", values).lastrowid)

    def _append_source(self, table: str, sha256: str, source: str) -> None:
        self._db.execute(f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT DO NOTHING", [sha256, source])


KEY_COLUMNS = ("source_sha256", "problem_sha256", "device", "precision", "protocol", "judge")


def _full_key(key: Key, judge: str) -> Key:
    if len(key) not in (len(KEY_COLUMNS) - 1, len(KEY_COLUMNS)):
        raise StoreError(f"an evaluation's key is ({', '.join(KEY_COLUMNS[:-1])}[, judge]), found {key!r}")
    return key if len(key) == len(KEY_COLUMNS) and key[-1] else (*key[: len(KEY_COLUMNS) - 1], judge)


def _held(run_id: str, path: Path, holder: Owner) -> str:
    return (
        f"run {run_id} in {path} is held by process {holder.pid} on {holder.host}, which lives. Wait for it to end, "
        f"end it there, or name another run with --run. A dead owner's run is free at once on its own machine, and "
        f"after {STALE_S:.0f} s on another."
    )


def _broken(error: sqlite3.IntegrityError) -> str:
    name = error.sqlite_errorname
    if name in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY"):
        return "it is recorded already. Nothing was written, so nothing is counted twice."
    if name == "SQLITE_CONSTRAINT_FOREIGNKEY":
        return "it refers to a run, an attempt or a parent that is not recorded. Record that first."
    if name == "SQLITE_CONSTRAINT_TRIGGER":
        return "records are appended and never changed."
    return "the value is not one that the schema allows."


def _candidate(row: Mapping[str, Any]) -> Candidate:
    values = {name: row[name] for name in ("id", "number", "island", "generation", "backend", "source", "mutator")}
    return Candidate(
        **values,
        rationale=row["rationale"],
        parent_ids=tuple(decode(row["parent_ids"])),
        details=decode(row["details"]),
    )


def _evaluated(row: Mapping[str, Any]) -> Evaluated:
    return Evaluated(_candidate(row), Evaluation.from_json(decode(row["document"])))
