"""The store: one SQLite file that remembers every run.

Only this module, with records.py (its SELECTs), migrations.py (its tables) and database.py (its file),
speaks SQL. Every method that writes is one transaction: when it returns, its record is on the disk; when it
raises, nothing of it is. Records are appended and never changed (triggers in migrations.py refuse it), and
uniqueness constraints make it impossible to count an attempt, a candidate or a told evaluation twice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlite_utils import Database

from fitness.evaluation import Evaluation, Verdict
from islands import records
from islands.browsing import Browsing
from islands.candidate import Candidate, Digests, Evaluated
from islands.codec import checksum, decode, encode, plain
from islands.database import StoreError, broken, connect, immediate, translated
from islands.integrity import findings, one_moment
from islands.lease import Lease, Owner, held, lost, this_place
from islands.migrations import CHECKSUMMED
from islands.novelty import digests_of, scheme
from islands.records import KEY_COLUMNS, TOLD, Key, attempt_of, candidate_of, evaluated_of, full_key, readable, run_of
from islands.run import OUTCOMES, Attempt, Counts, Event, Run, utc_now

DOCUMENT = readable("evaluations", "document")

PAGE = 500
"""Rows of a history that are read at once."""

__all__ = ["Store", "StoreError", "open_store"]


def open_store(path: str | Path, read_only: bool = False) -> Store:
    """The store in the file `path`, created or migrated in place where needed.

    With `read_only` the file must exist and may be written by another process meanwhile. Raises StoreError
    for a file that is corrupt, not ours, from a newer version, not writable, or on a network file system.
    """
    return Store(Path(path), connect(Path(path), read_only), read_only)


class Store(Browsing):
    """One open database file; usable from several threads of the process that opened it."""

    def __init__(self, path: Path, db: Database, read_only: bool) -> None:
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
        """Gives back leases still held and closes the file; the last to close folds the -wal file into it."""
        with self._lock:
            for run_id in list(self._tokens):
                self.release_lease(run_id)
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes several writes one: all of them are kept, or, when the block raises, none."""
        with self._lock, self._ours():
            nested = self._db.conn.in_transaction
            with self._db.atomic() if nested else immediate(self._db):
                yield

    def check(self) -> list[str]:
        """What is wrong with the file, see integrity.findings; empty when all is well."""
        with self._lock, self._ours(), one_moment(self._db):
            return findings(self._db)

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

    def _runs(self, clause: str, values: Mapping[str, Any]) -> list[Run]:
        return [run_of(row) for row in self._rows(f"{records.RUNS} {clause}", values)]

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
        values = {
            "run_id": run_id,
            "number": number,
            "outcome": outcome,
            "reason": plain(reason),
            "mutator": None if mutator is None else plain(mutator),
            "rationale": plain(rationale),
            "usage": encode(records.mapping_of(usage)),
            "details": encode(dict(details or {})),
            "closed_at": utc_now(),
        }
        with self._write(f"close attempt {number} of run {run_id}", run_id):
            self._insert("outcomes", values)

    def attempts(self, run_id: str) -> list[Attempt]:
        """All attempts by number; those still open have no outcome."""
        return [attempt_of(row) for row in self._rows(records.ATTEMPTS, {"run": run_id})]

    def next_number(self, run_id: str) -> int:
        """One more than the highest number that an attempt or a candidate of the run has used; 0 at first."""
        return int(self._rows(records.NEXT_NUMBER, {"run": run_id})[0]["number"])

    # Candidates and evaluations

    def add_candidate(self, run_id: str, candidate: Candidate) -> None:
        """Records a candidate before it is built. StoreError when its number is taken or a parent unknown."""
        try:
            sha256 = candidate.source_sha256
        except UnicodeEncodeError as error:
            raise StoreError(f"source of candidate {candidate.id} is not valid Unicode: {error}. Refuse it.") from error
        with self._write(f"add candidate {candidate.id}", run_id):
            self._append_source("sources", sha256, candidate.source)
            self._append_digests(digests_of(candidate))
            self._insert("candidates", records.row_of(run_id, candidate, sha256))
            for position, parent_id in enumerate(candidate.parent_ids):
                row = {"candidate_id": candidate.id, "position": position, "parent_id": parent_id}
                self._insert("parents", row)

    def add_evaluation(self, run_id: str, candidate_id: str, evaluation: Evaluation, key: Key) -> None:
        """Tells a candidate its evaluation: this fixes its place in the run's history.

        The same evaluation under the same key is kept once, whoever is told it. StoreError when the candidate
        is unknown, was told before, or has another source than the key or the evaluation.
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
                f"evaluation for candidate {candidate_id} belongs to another program: expected source "
                f"and problem {expected}, found key {key[:2]}, evaluated source {evaluation.source_sha256}."
            )

    def _append_evaluation(self, run_id: str, evaluation: Evaluation, key: Key) -> int:
        columns = dict(zip(KEY_COLUMNS, full_key(key, evaluation.judge_sha256), strict=True))
        document = encode(dataclasses.asdict(evaluation))
        values = columns | {"document_sha256": hashlib.sha256(document.encode()).hexdigest()}
        same = " AND ".join(f"{name} = :{name}" for name in values)
        rows = self._rows(f"SELECT id FROM evaluations WHERE {same}", values)
        if rows:
            return int(rows[0]["id"])
        return self._insert("evaluations", values | {"run_id": run_id, "document": document, "evaluated_at": utc_now()})

    def find_evaluation(self, key: Key) -> Evaluation | None:
        """The newest evaluation under `key` in any run of the file, or None.

        One without a verdict is never found: the noise that prevented it must not become permanent.
        """
        names = KEY_COLUMNS if len(key) == len(KEY_COLUMNS) and key[-1] else KEY_COLUMNS[:-1]
        where = " AND ".join(f"{name} = ?" for name in names)
        rows = self._rows(
            f"SELECT {DOCUMENT} AS document FROM evaluations WHERE {where} AND verdict <> '{Verdict.NO_VERDICT}' "
            "ORDER BY id DESC LIMIT 1",
            list(full_key(key, "")[: len(names)]),
        )
        return Evaluation.from_json(decode(rows[0]["document"])) if rows else None

    def history(self, run_id: str) -> list[Evaluated]:
        """Every told candidate with its evaluation, in the order told."""
        return list(self.stream(run_id))

    def stream(self, run_id: str) -> Iterator[Evaluated]:
        """The history as it is read, a page at a time: a hundred thousand candidates do not fit into little memory."""
        place = f"{TOLD} WHERE tellings.run_id = ? AND tellings.position >= ? ORDER BY tellings.position LIMIT {PAGE}"
        position = 0
        while rows := self._rows(place, [run_id, position]):
            yield from (evaluated_of(row) for row in rows)
            position += PAGE  # positions have no gaps

    def told_at(self, run_id: str) -> list[str]:
        """When each member of the history was told, in the order told (UTC, ISO 8601)."""
        return [row["told_at"] for row in self._rows(records.TOLD_AT, {"run": run_id})]

    def told_of(self, candidate_ids: Sequence[str]) -> list[Evaluated]:
        """Those of these candidates that were told, in no order."""
        where = "candidates.id IN (SELECT value FROM json_each(?))"
        return [evaluated_of(row) for row in self._rows(f"{TOLD} WHERE {where}", [encode(list(candidate_ids))])]

    def pending(self, run_id: str) -> list[Candidate]:
        """Candidates that are recorded but not told, by number: what a resumed run builds again."""
        rows = self._rows(
            f"{records.CANDIDATES} WHERE run_id = ? "
            "AND NOT EXISTS (SELECT 1 FROM tellings WHERE candidate_id = candidates.id) ORDER BY number",
            [run_id],
        )
        return [candidate_of(row) for row in rows]

    def find_candidate(self, id_or_prefix: str) -> Candidate | None:
        """The candidate of that id, or the only one whose id begins so; StoreError when there are several."""
        rows = self._rows(
            f"{records.CANDIDATES} WHERE candidates.id >= :low AND candidates.id < :high "
            "ORDER BY candidates.id LIMIT 4",
            {"low": id_or_prefix, "high": id_or_prefix + "\U0010ffff"},
        )
        if len(rows) > 1 and rows[0]["id"] != id_or_prefix:
            several = ", ".join(row["id"] for row in rows)
            raise StoreError(f"several candidates begin with {id_or_prefix!r}: {several}, ... Give more of the id.")
        return candidate_of(rows[0]) if rows else None

    def evaluated(self, candidate_id: str) -> Evaluated | None:
        """The candidate with what it was told; None when it is unknown or not told yet."""
        return next(iter(self.told_of([candidate_id])), None)

    def top(self, problem_id: str | None = None, limit: int = 10) -> list[Evaluated]:
        """The correct candidates of highest median speedup over all runs, each evaluation once.

        With `problem_id`, those of that problem's source, under whatever name a run knew it.
        """
        return [evaluated_of(row) for row in self._rows(records.TOP, {"problem": problem_id, "limit": limit})]

    def counts(self, run_id: str) -> Counts:
        """What the run holds, counted by the database."""
        of_run = {"run": run_id}
        attempts = {row["name"]: row["n"] for row in self._rows(records.OUTCOME_COUNTS, of_run)}
        verdicts = {row["name"]: row["n"] for row in self._rows(records.VERDICT_COUNTS, of_run)}
        return Counts(attempts, verdicts, told=sum(verdicts.values()), **self._rows(records.TOTALS, of_run)[0])

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
        """Ownership of the run, for a `with` block.

        StoreError on entering when another live process holds it, and on any write to the run after another
        process has taken it over.
        """
        return Lease(self, run_id)

    def take_lease(self, run_id: str, owner: Owner) -> None:
        """Makes `owner` the run's owner. StoreError when another one lives."""
        with self._write(f"lease run {run_id}"):
            holder = self._holder(run_id)
            if holder and holder.lives(time.time(), this_place()):
                raise StoreError(held(run_id, self.path, holder))
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
        if token is None:
            return
        with self._write(f"release run {run_id}"):
            self._db.execute("DELETE FROM leases WHERE run_id = ? AND token = ?", [run_id, token])

    def _holder(self, run_id: str) -> Owner | None:
        names = "pid, process_started, place, host, token, beat_at"
        rows = self._rows(f"SELECT {names} FROM leases WHERE run_id = ?", [run_id])
        return Owner(**rows[0]) if rows else None

    def _refuse_lost_lease(self, run_id: str) -> None:
        token = self._tokens.get(run_id)
        holder = self._holder(run_id) if token is not None else None
        if token is not None and (holder is None or holder.token != token):
            raise StoreError(lost(run_id, self.path, holder))

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
            raise StoreError(f"cannot {what} in {self.path}: {error}: {broken(error)}") from error
        except OverflowError as error:
            raise StoreError(f"cannot {what} in {self.path}: {error}. Use integers of at most 64 bits.") from error

    def _rows(self, sql: str, values: Any = ()) -> list[dict[str, Any]]:
        with self._lock, self._ours():
            cursor = self._db.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def _insert(self, table: str, values: dict[str, Any]) -> int:
        if table in CHECKSUMMED:
            values = values | {"checksum": checksum(values)}
        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        cursor = self._db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", values)
        return cursor.lastrowid or 0

    def _append_digests(self, digests: Digests) -> None:
        row = {"source_sha256": digests.source, "scheme": scheme()}
        if not self._rows("SELECT 1 FROM fingerprints WHERE source_sha256 = :source_sha256 AND scheme = :scheme", row):
            self._insert("fingerprints", row | {"program": digests.program, "skeleton": digests.skeleton})

    def _append_source(self, table: str, sha256: str, source: str) -> None:
        self._db.execute(f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT DO NOTHING", [sha256, source])
