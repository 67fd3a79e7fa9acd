"""Merging another database into ours: everything it holds that ours lacks, in one transaction, or nothing.

Identifiers are unique across machines: a run's id is random, and every other id is made of it and a number. So rows
are compared by what they are, never by the row numbers that a file gave them: a run that both files hold is the same
history in two lengths, or two histories that parted (then nothing is merged). With the modules that store.py names
this one speaks SQL: it reads one file and writes another.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from islands.codec import checksum
from islands.database import MAGIC, StoreError, connect, immediate, translated
from islands.lease import Owner, held, this_place
from islands.migrations import CHECKSUMMED, SCHEMA_VERSION
from islands.records import whole

Row = dict[str, Any]
Key = tuple[Any, ...]
"""What tells a row from the others of its run and table."""

TEXTS = {"problems": "source", "sources": "source"}
"""Tables whose key is the sha256 of one column."""

KEYS: dict[str, tuple[str, ...]] = {
    "attempts": ("number",),
    "outcomes": ("number",),
    "candidates": ("id",),
    "parents": ("candidate_id", "position"),
    "tellings": ("position",),
    "events": (),
    "requests": ("number", "turn"),
    "tries": (),
    "replies": ("number", "turn"),
    "model_failures": (),
}
"""A run's tables, each after those that it refers to, and their keys within the run; without one a row's place in the
order written is its key."""

EVALUATION = ("source_sha256", "problem_sha256", "device", "precision", "protocol", "judge", "document_sha256")
"""What identifies an evaluation in every file."""

UNMERGED = ("leases", "packs", "fingerprints")
"""Tables that say what goes on in one file now, how it stores its texts, or what follows from them."""

USER_VERSION = slice(60, 64)
"""Where a SQLite file's header holds its schema version, big-endian (https://www.sqlite.org/fileformat.html)."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge brought in; runs by the names that they have in our file."""

    added: tuple[str, ...] = ()
    extended: tuple[str, ...] = ()
    """Runs that both files held, the other one longer."""
    unchanged: tuple[str, ...] = ()
    """Runs of which our file held as much, or more."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the other file's, where ours had a run of that name."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows added, by table."""


@dataclass(frozen=True, slots=True)
class _Side:
    """One file, read with numbers that only it knows replaced by what they stand for."""

    db: Database
    path: Path

    def rows(self, sql: str, values: Any = ()) -> Iterator[Row]:
        """The rows of a SELECT, one at a time: a file may hold more text than memory does."""
        with translated(self.path):
            cursor = self.db.execute(sql, values)
            names = [column[0] for column in cursor.description]
            for row in cursor:
                found = zip(names, row, strict=True)
                yield {name: value for name, value in found if name != "checksum" and not name.endswith("_pack")}

    def runs(self) -> dict[str, Row]:
        """Its runs by id, oldest first."""
        return {row["id"]: row for row in self.rows("SELECT * FROM runs ORDER BY started_at, rowid")}

    def keyed(self, table: str, run_id: str) -> Iterator[tuple[Key, Row]]:
        """A run's rows of one table with their keys, in the order written."""
        names = KEYS[table]
        for place, row in enumerate(self.rows(SELECTS.get(table, SELECT).format(table=table), {"run": run_id})):
            if not names:
                del row["id"]
            yield tuple(row[name] for name in names) if names else (place,), row

    def digests(self, table: str, run_id: str) -> dict[Key, bytes]:
        """What `_digest` gives for each of a run's rows of one table."""
        return {key: _digest(row) for key, row in self.keyed(table, run_id)}


SAME_REQUEST = (
    "tries.run_id = model_failures.run_id AND tries.number = model_failures.number AND tries.turn = model_failures.turn"
)

SELECT = "SELECT {table}.* FROM {table} WHERE run_id = :run ORDER BY rowid"

SELECTS = {
    "requests": f"{whole('requests')} WHERE run_id = :run ORDER BY requests.rowid",
    "replies": f"{whole('replies')} WHERE run_id = :run ORDER BY replies.rowid",
    "parents": """
        SELECT parents.* FROM parents JOIN candidates ON candidates.id = candidate_id
        WHERE run_id = :run ORDER BY parents.rowid
    """,
    "tellings": f"""
        SELECT tellings.run_id, position, candidate_id, told_at, {", ".join(EVALUATION)}
        FROM tellings JOIN evaluations ON evaluations.id = evaluation_id
        WHERE tellings.run_id = :run ORDER BY position
    """,
    "tries": "SELECT * FROM tries WHERE run_id = :run ORDER BY id",
    "events": "SELECT * FROM events WHERE run_id = :run ORDER BY id",
    "model_failures": f"""
        SELECT *, (SELECT count(*) FROM tries WHERE {SAME_REQUEST} AND tries.id <= last_try) AS last_try
        FROM model_failures WHERE run_id = :run ORDER BY id
    """,
}
"""Where a row number stands for something: a telling's evaluation, and how many tries came before a failure."""


def merge_databases(ours: Path, other: Path) -> Merged:
    """Brings all of `other` into `ours`, which is created where it does not exist; `other` is only read.

    Merging again changes nothing. StoreError, with nothing changed, when either file cannot be used, when rows of
    `other` do not fit their checksums, when a run went on in both files since they parted, or when a run that would
    grow is at work in ours.
    """
    if other.exists() and ours.exists() and other.samefile(ours):
        raise StoreError(f"{other} is the database to import into. Name another one, or another --db.")
    with (
        _opened(other) as theirs,
        closing(connect(ours, read_only=False)) as db,
        _in_words(ours, other),
        translated(ours),
        _one_moment(theirs.db),
        immediate(db),
    ):
        return _merge(_Side(db, ours), theirs)


def _merge(mine: _Side, theirs: _Side) -> Merged:
    before, incoming = mine.runs(), theirs.runs()
    shared = [run_id for run_id in incoming if run_id in before]
    grown = [run_id for run_id in shared if _compare(mine, theirs, before[run_id], incoming[run_id])]
    _refuse_held(mine, grown)
    rows = {table: _copy_texts(mine, theirs, table) for table in TEXTS}
    added = {run_id: _add_run(mine, run) for run_id, run in incoming.items() if run_id not in before}
    rows |= {"runs": len(added), "evaluations": _copy_evaluations(mine, theirs)}
    for table in KEYS:
        rows[table] = sum(_append(mine, theirs, table, run_id, run_id in before) for run_id in [*added, *grown])
    return Merged(
        added=tuple(added.values()),
        extended=tuple(before[run_id]["name"] for run_id in grown),
        unchanged=tuple(before[run_id]["name"] for run_id in shared if run_id not in grown),
        renamed={name: incoming[run_id]["name"] for run_id, name in added.items() if incoming[run_id]["name"] != name},
        rows={table: count for table, count in rows.items() if count},
    )


def _compare(mine: _Side, theirs: _Side, ours: Row, other: Row) -> bool:
    """Does the other file hold more of this run than ours? StoreError when each holds what the other lacks."""
    if {**ours, "name": ""} != {**other, "name": ""}:
        raise StoreError(_parted(mine, theirs, ours, "they began differently"))
    only_ours, only_theirs = [], []
    for table in KEYS:
        known = mine.digests(table, ours["id"])
        for key, row in theirs.keyed(table, ours["id"]):
            digest = known.pop(key, None)
            if digest is None:
                only_theirs.append((table, key))
            elif digest != _digest(row):
                raise StoreError(_parted(mine, theirs, ours, f"they differ in {_words(table, key)}"))
        only_ours += [(table, key) for key in known]
    if only_ours and only_theirs:
        what = f"only ours has {_words(*only_ours[0])}, only the other one {_words(*only_theirs[0])}"
        raise StoreError(_parted(mine, theirs, ours, what))
    return bool(only_theirs)


def _digest(row: Row) -> bytes:
    return hashlib.sha256(repr(sorted(row.items())).encode("utf-8", "surrogatepass")).digest()


def _words(table: str, key: Key) -> str:
    return f"{table} {' '.join(str(part) for part in key)}"


def _parted(mine: _Side, theirs: _Side, run: Row, what: str) -> str:
    return (
        f"run {run['name']} ({run['id']}) is in {mine.path} and in {theirs.path} with histories that conflict: {what}. "
        f"It went on in both files since they parted, so none of them contains the other; nothing was changed. Keep "
        f"{theirs.path} as a file of its own, or import it into another database (--db)."
    )


def _refuse_held(mine: _Side, grown: list[str]) -> None:
    for run_id in grown:
        found = list(mine.rows(HOLDER, {"run": run_id}))
        if found and (holder := Owner(**found[0])).lives(time.time(), this_place()):
            raise StoreError(f"run {run_id} would grow by this import; {held(run_id, mine.path, holder)}")


HOLDER = "SELECT pid, process_started, place, host, token, beat_at FROM leases WHERE run_id = :run"


def _copy_texts(mine: _Side, theirs: _Side, table: str) -> int:
    column = TEXTS[table]
    added = 0
    for row in theirs.rows(f"SELECT * FROM {table} ORDER BY rowid"):
        _refuse_damaged(theirs, f"{table} {row['sha256']}", row[column], row["sha256"])
        added += _insert(mine, table, row, "ON CONFLICT DO NOTHING")
    return added


def _copy_evaluations(mine: _Side, theirs: _Side) -> int:
    """The same evaluation, to the last digit, is kept once, as within one file; ours keeps the run that paid for it."""
    added = 0
    for row in theirs.rows(f"{whole('evaluations')} ORDER BY id"):
        number = row.pop("id")
        _refuse_damaged(theirs, f"evaluation {number}", row["document"], row["document_sha256"])
        stored = {name: value for name, value in row.items() if name not in ("verdict", "speedup")}
        added += _insert(mine, "evaluations", stored, "ON CONFLICT DO NOTHING")
    return added


def _refuse_damaged(theirs: _Side, what: str, text: str, expected: str) -> None:
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != expected:
        raise StoreError(
            f"{theirs.path} is damaged: {what} has sha256 {found}, expected {expected}; nothing was imported. Restore "
            f"it from a backup, or copy it again from where it came from."
        )


def _add_run(mine: _Side, run: Row) -> str:
    """Adds a run under its own name, or, where ours has a run of that name, with its id behind it."""
    taken = {row["name"] for row in mine.rows("SELECT name FROM runs")}
    name = run["name"] if run["name"] not in taken else f"{run['name']}@{run['id']}"
    _insert(mine, "runs", run | {"name": name})
    return str(name)


def _append(mine: _Side, theirs: _Side, table: str, run_id: str, is_known: bool) -> int:
    """Adds the rows of a run that ours lacks; how many."""
    known = mine.digests(table, run_id).keys() if is_known else set()
    added = 0
    for key, row in theirs.keyed(table, run_id):
        if key not in known:
            added += _insert(mine, table, _localised(mine, table, row))
    return added


def _localised(mine: _Side, table: str, row: Row) -> Row:
    """The row with our file's numbers for what it refers to."""
    if table == "tellings":
        where = " AND ".join(f"{name} = :{name}" for name in EVALUATION)
        found = next(mine.rows(f"SELECT id FROM evaluations WHERE {where}", row))
        return {name: value for name, value in row.items() if name not in EVALUATION} | {"evaluation_id": found["id"]}
    if table == "model_failures" and row["last_try"]:
        same = "run_id = :run_id AND number = :number AND turn = :turn"
        found = next(mine.rows(f"SELECT id FROM tries WHERE {same} ORDER BY id LIMIT 1 OFFSET :last_try - 1", row))
        return row | {"last_try": found["id"]}
    return row


def _insert(mine: _Side, table: str, row: Row, clause: str = "") -> int:
    row = row | {"checksum": checksum(row)} if table in CHECKSUMMED else row
    names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
    return mine.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks}) {clause}", row).rowcount


@contextmanager
def _opened(path: Path) -> Iterator[_Side]:
    """The other file, only read; one of an older schema is copied and the copy migrated."""
    with tempfile.TemporaryDirectory(prefix="kb-evolve-import-") as folder:
        copy = Path(folder) / "copy.db"
        is_older = 0 < _schema_version(path) < SCHEMA_VERSION
        if is_older:
            with translated(path):
                _copy(path, copy)
        with closing(connect(copy if is_older else path, read_only=not is_older)) as db:
            yield _Side(db, path)


def _schema_version(path: Path) -> int:
    """What the file's header says; 0 for what is not one of SQLite's."""
    if not path.is_file() or not os.access(path, os.R_OK):
        return 0
    with path.open("rb") as file:
        head = file.read(USER_VERSION.stop)
    return int.from_bytes(head[USER_VERSION]) if head.startswith(MAGIC) else 0


def _copy(path: Path, to: Path) -> None:
    with (
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(to)) as target,
    ):
        source.backup(target)


@contextmanager
def _one_moment(db: Database) -> Iterator[None]:
    """Reads that all see the file as it stood at the first one, whoever writes to it meanwhile."""
    db.conn.execute("BEGIN")
    try:
        yield
    finally:
        db.conn.execute("ROLLBACK")


@contextmanager
def _in_words(ours: Path, other: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise StoreError(
            f"{other} cannot be imported into {ours}: {error}; nothing was changed. Its records do not fit together: "
            f"look at it with `kb-evolve doctor --db {other}`."
        ) from error
