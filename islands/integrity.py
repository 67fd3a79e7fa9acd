"""What is wrong with a database: every page, every reference, every checksum, and the order of every history.

SQLite's own check finds broken trees, not a changed letter inside a row; so rows carry checksums, and sources,
problems, evaluations and compressed texts a sha256. With the modules that store.py names this one speaks SQL.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from islands.codec import checksum, inflate
from islands.database import StoreError, connect, error_name, translated
from islands.lease import Owner, this_place
from islands.migrations import CHECKSUMMED, MIGRATIONS, VERSIONS
from islands.records import whole
from islands.wal import wal_note

Row = dict[str, Any]

SHOWN = 5
"""Findings of one kind that are spelled out; the others are counted."""

QUERIES = (
    # The sequence of a run's history has no gaps.
    """SELECT 'run ' || run_id || ' has ' || count(*) || ' tellings at positions ' || min(position) || ' to '
           || max(position) || ', expected 0 to ' || (count(*) - 1)
       FROM tellings GROUP BY run_id HAVING min(position) <> 0 OR max(position) <> count(*) - 1""",
    # A candidate was told what was measured of its own source, on its run's problem.
    """SELECT 'candidate ' || candidates.id || ' was told evaluation ' || evaluations.id || ', of another program'
       FROM tellings JOIN candidates ON candidates.id = candidate_id JOIN evaluations ON evaluations.id = evaluation_id
       JOIN runs ON runs.id = tellings.run_id
       WHERE candidates.source_sha256 <> evaluations.source_sha256
          OR runs.problem_sha256 <> evaluations.problem_sha256""",
    """SELECT 'evaluation ' || id || ' of run ' || run_id || ' belongs to no candidate' FROM evaluations
       WHERE NOT EXISTS (SELECT 1 FROM tellings WHERE evaluation_id = evaluations.id)""",
    """SELECT 'candidate ' || candidate_id || ' has parents at positions ' || min(position) || ' to ' || max(position)
           || ', expected 0 to ' || (count(*) - 1)
       FROM parents GROUP BY candidate_id HAVING min(position) <> 0 OR max(position) <> count(*) - 1""",
    """SELECT 'candidate ' || child.id || ' is older than its parent ' || parent.id
       FROM parents JOIN candidates AS child ON child.id = candidate_id
       JOIN candidates AS parent ON parent.id = parent_id
       WHERE child.run_id = parent.run_id AND parent.number >= child.number""",
    """SELECT 'attempt ' || number || ' of run ' || run_id || ' gave a candidate that is not there' FROM outcomes
       WHERE outcome = 'candidate' AND NOT EXISTS (SELECT 1 FROM candidates
           WHERE candidates.run_id = outcomes.run_id AND candidates.number = outcomes.number)""",
    """SELECT 'model failure ' || id || ' of run ' || run_id || ' follows a try of another request' FROM model_failures
       WHERE last_try <> 0 AND NOT EXISTS (SELECT 1 FROM tries WHERE tries.id = last_try
           AND tries.run_id = model_failures.run_id AND tries.number = model_failures.number
           AND tries.turn = model_failures.turn)""",
)
"""Each gives one sentence for every record that does not fit the others."""

Hashed = tuple[str, str, Callable[[Row], str]]
"""A SELECT, its column that holds a sha256, and the text that it is of."""

TEXTS: tuple[Hashed, ...] = (
    ("SELECT * FROM sources", "sha256", lambda row: str(row["source"])),
    ("SELECT * FROM problems", "sha256", lambda row: str(row["source"])),
    ("SELECT * FROM packs", "sha256", lambda row: inflate(row["body"])),
)

DOCUMENTS: tuple[Hashed, ...] = ((whole("evaluations"), "document_sha256", lambda row: str(row["document"])),)


@dataclass(frozen=True, slots=True)
class Health:
    """What a look at a whole file found."""

    findings: tuple[str, ...]
    """What is wrong; empty when all is well."""
    notes: tuple[str, ...]
    """What is worth knowing: who holds a run, an unfinished transaction in the write-ahead log."""
    rows: dict[str, int]
    """Rows by table."""


def examine(path: Path) -> Health:
    """Looks at everything in the file, which is only read. StoreError when it cannot be opened or read at all."""
    note = wal_note(path)
    with closing(connect(path, read_only=True)) as db, translated(path), one_moment(db):
        found = findings(db)
        rows = {} if found else row_counts(db)
        leases = [] if found else lease_notes(db)
        return Health(tuple(found), tuple(([note] if note else []) + leases), rows)


def findings(db: Database) -> list[str]:
    """What is wrong with an open database, one sentence each; empty when all is well."""
    # What rests on broken pages, or on broken texts, is not looked at: it would repeat the finding in other words.
    return (
        _pages(db)
        or [*_schema(db), *_hashes(db, TEXTS)]
        or [*_references(db), *_hashes(db, DOCUMENTS), *_checksums(db), *_queries(db)]
    )


def _pages(db: Database) -> list[str]:
    try:
        found = [str(text) for (text,) in db.execute("PRAGMA integrity_check").fetchall()]
    except sqlite3.DatabaseError as error:
        if error_name(error) not in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
            raise
        return [str(error)]
    return [" ".join(text.split()) for text in found if text != "ok"]


def _schema(db: Database) -> list[str]:
    """Tables, indices and triggers that differ from what our migrations make; others may have added their own."""
    with closing(Database(sqlite3.connect(":memory:", isolation_level=None), execute_plugins=False)) as fresh:
        MIGRATIONS.apply(fresh)
        expected = _objects(fresh)
    found = _objects(db)
    wrong = [
        f"{kind} {name} is missing or was changed"
        for (kind, name), sql in expected.items()
        if found.get((kind, name)) != sql
    ]
    applied = [name for (name,) in db.execute(f"SELECT name FROM {MIGRATIONS.migrations_table} ORDER BY id")]
    return wrong + ([] if applied == list(VERSIONS) else [f"migrations are {applied}, expected {list(VERSIONS)}"])


def _objects(db: Database) -> dict[tuple[str, str], str]:
    rows = db.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {(kind, name): sql for kind, name, sql in rows if name != MIGRATIONS.migrations_table}


def _references(db: Database) -> list[str]:
    rows = db.execute("PRAGMA foreign_key_check").fetchall()
    return _shortened(f"row {row} of {table} refers to a missing row of {parent}" for table, row, parent, _ in rows)


def _hashes(db: Database, hashed: tuple[Hashed, ...]) -> list[str]:
    return [text for one in hashed for text in _shortened(_wrong_hashes(db, one))]


def _wrong_hashes(db: Database, hashed: Hashed) -> Iterator[str]:
    select, column, text_of = hashed
    table = select.rpartition(" ")[2]
    for row in _rows(db, select):
        try:
            found = hashlib.sha256(text_of(row).encode()).hexdigest()
        except ValueError as error:
            yield f"a row of {table}: {error}; its {column} is {row[column]}"
            continue
        if found != row[column]:
            yield f"a row of {table} does not fit its {column}: {row[column]} stands there, its text has {found}"


def _checksums(db: Database) -> list[str]:
    return [text for table in CHECKSUMMED for text in _shortened(_wrong_checksums(db, table))]


def _wrong_checksums(db: Database, table: str) -> Iterator[str]:
    for row in _rows(db, whole(table)):
        if row["checksum"] is not None and checksum(row) != row["checksum"]:
            place = ", ".join(f"{name} {row[name]}" for name in ("run_id", "id", "number", "position") if name in row)
            yield f"a row of {table} ({place}) does not fit its checksum: a value in it was changed"


def _queries(db: Database) -> list[str]:
    return [text for query in QUERIES for text in _shortened(str(row[0]) for row in db.execute(query))]


def _rows(db: Database, select: str) -> Iterator[Row]:
    cursor = db.execute(select)
    names = [column[0] for column in cursor.description]
    for row in cursor:
        yield dict(zip(names, row, strict=True))


def _shortened(found: Iterator[str]) -> list[str]:
    """The first few, and how many more there are."""
    shown: list[str] = []
    more = 0
    for text in found:
        if len(shown) < SHOWN:
            shown.append(text)
        else:
            more += 1
    return shown + ([f"and {more} more of this kind"] if more else [])


def row_counts(db: Database) -> dict[str, int]:
    """Rows by table of ours."""
    tables = [*CHECKSUMMED, "problems", "sources", "packs"]
    return {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


def holders(db: Database) -> dict[str, Owner]:
    """Who holds a run now, dead or alive, by the run's id."""
    rows = _rows(db, "SELECT run_id, pid, process_started, place, host, token, beat_at FROM leases ORDER BY run_id")
    return {row.pop("run_id"): Owner(**row) for row in rows}


def living(db: Database) -> dict[str, Owner]:
    """Those holders that live, as far as this machine can tell."""
    return {run: owner for run, owner in holders(db).items() if owner.lives(time.time(), this_place())}


def lease_notes(db: Database) -> list[str]:
    """The state of every lease in words."""
    alive = living(db)
    return [
        f"run {run} is held by process {owner.pid} on {owner.host}, which lives; its last heartbeat is "
        f"{max(0.0, time.time() - owner.beat_at):.0f} s old"
        if run in alive
        else f"run {run} was held by process {owner.pid} on {owner.host}, which is dead: the run is free"
        for run, owner in holders(db).items()
    ]


@contextmanager
def one_moment(db: Database) -> Iterator[None]:
    """Reads that all see the file as it stood at the first one, whoever writes to it meanwhile."""
    if db.conn.in_transaction:
        yield
        return
    db.conn.execute("BEGIN")
    try:
        yield
    finally:
        if db.conn.in_transaction:
            db.conn.execute("ROLLBACK")


def refuse_damaged(path: Path, what_to_do: str) -> Health:
    """The file's health. StoreError that ends in `what_to_do` when anything is wrong with it."""
    health = examine(path)
    if health.findings:
        raise StoreError(f"{path} is damaged: {'; '.join(health.findings[:3])}. {what_to_do}")
    return health
