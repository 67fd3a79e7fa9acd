"""The schema, as numbered migrations that are applied in place and never edited once released.

The tables of migration 1 are append-only, and triggers keep them so: a row that was acknowledged can be
neither changed nor removed. `leases` (migration 2) says who works on a run now; it is no history.
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations

APPLICATION_ID = 0x6B626576
"""`kbev` in ASCII, in the file's header: how a file is known to be ours."""

MIGRATIONS = Migrations("kb_evolve")

HISTORY = """
CREATE TABLE problems (
    sha256 TEXT PRIMARY KEY,
    source TEXT NOT NULL
) STRICT;

CREATE TABLE sources (
    sha256 TEXT PRIMARY KEY,
    source TEXT NOT NULL
) STRICT;

CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    problem_id TEXT NOT NULL,
    problem_sha256 TEXT NOT NULL REFERENCES problems (sha256),
    backend TEXT NOT NULL,
    device TEXT NOT NULL,
    precision TEXT NOT NULL,
    config TEXT NOT NULL,
    seed INTEGER NOT NULL,
    budget TEXT NOT NULL,
    git_commit TEXT NOT NULL,
    started_at TEXT NOT NULL
) STRICT;

CREATE TABLE attempts (
    run_id TEXT NOT NULL REFERENCES runs (id),
    number INTEGER NOT NULL CHECK (number >= 0),
    island INTEGER NOT NULL CHECK (island >= 0),
    mutator TEXT NOT NULL,
    parent_ids TEXT NOT NULL,
    opened_at TEXT NOT NULL,
    PRIMARY KEY (run_id, number)
) STRICT;

CREATE TABLE outcomes (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('candidate', 'refused', 'duplicate', 'error', 'lost')),
    reason TEXT NOT NULL,
    mutator TEXT,
    rationale TEXT NOT NULL,
    usage TEXT NOT NULL,
    details TEXT NOT NULL,
    closed_at TEXT NOT NULL,
    PRIMARY KEY (run_id, number),
    FOREIGN KEY (run_id, number) REFERENCES attempts (run_id, number)
) STRICT;

CREATE TABLE candidates (
    id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (id),
    number INTEGER NOT NULL CHECK (number >= 0),
    island INTEGER NOT NULL CHECK (island >= 0),
    generation INTEGER NOT NULL CHECK (generation >= 0),
    backend TEXT NOT NULL,
    source_sha256 TEXT NOT NULL REFERENCES sources (sha256),
    mutator TEXT NOT NULL,
    rationale TEXT NOT NULL,
    details TEXT NOT NULL,
    added_at TEXT NOT NULL,
    UNIQUE (run_id, number),
    UNIQUE (run_id, id)
) STRICT;

CREATE TABLE parents (
    candidate_id TEXT NOT NULL REFERENCES candidates (id),
    position INTEGER NOT NULL,
    parent_id TEXT NOT NULL REFERENCES candidates (id),
    PRIMARY KEY (candidate_id, position)
) STRICT;
CREATE INDEX children_of_parents ON parents (parent_id);

CREATE TABLE evaluations (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (id),
    source_sha256 TEXT NOT NULL REFERENCES sources (sha256),
    problem_sha256 TEXT NOT NULL REFERENCES problems (sha256),
    device TEXT NOT NULL,
    precision TEXT NOT NULL,
    protocol TEXT NOT NULL,
    judge TEXT NOT NULL,
    document TEXT NOT NULL,
    document_sha256 TEXT NOT NULL,
    evaluated_at TEXT NOT NULL,
    verdict TEXT NOT NULL GENERATED ALWAYS AS (json_extract(document, '$.verdict')) VIRTUAL,
    speedup REAL GENERATED ALWAYS AS (json_extract(document, '$.speedup')) VIRTUAL,
    UNIQUE (source_sha256, problem_sha256, device, precision, protocol, judge, document_sha256)
) STRICT;
CREATE INDEX evaluations_by_speedup ON evaluations (speedup) WHERE speedup IS NOT NULL;
CREATE INDEX evaluations_by_run ON evaluations (run_id);

CREATE TABLE tellings (
    run_id TEXT NOT NULL,
    position INTEGER NOT NULL CHECK (position >= 0),
    candidate_id TEXT NOT NULL UNIQUE,
    evaluation_id INTEGER NOT NULL REFERENCES evaluations (id),
    told_at TEXT NOT NULL,
    PRIMARY KEY (run_id, position),
    FOREIGN KEY (run_id, candidate_id) REFERENCES candidates (run_id, id)
) STRICT;
CREATE INDEX tellings_of_evaluations ON tellings (evaluation_id);

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (id),
    kind TEXT NOT NULL,
    fields TEXT NOT NULL,
    at TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_runs ON events (run_id);
"""

APPEND_ONLY = (
    "problems",
    "sources",
    "runs",
    "attempts",
    "outcomes",
    "candidates",
    "parents",
    "evaluations",
    "tellings",
    "events",
)

LEASES = """
CREATE TABLE leases (
    run_id TEXT PRIMARY KEY REFERENCES runs (id),
    token TEXT NOT NULL,
    pid INTEGER NOT NULL,
    process_started INTEGER NOT NULL,
    place TEXT NOT NULL,
    host TEXT NOT NULL,
    beat_at REAL NOT NULL
) STRICT;
"""


CONVERSATIONS = """
CREATE TABLE requests (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    turn INTEGER NOT NULL CHECK (turn >= 0),
    operator TEXT NOT NULL,
    model TEXT NOT NULL,
    island INTEGER NOT NULL,
    parent_ids TEXT NOT NULL,
    messages TEXT NOT NULL,
    prompt_version TEXT NOT NULL,
    parameters TEXT NOT NULL,
    opened_at TEXT NOT NULL,
    PRIMARY KEY (run_id, number, turn),
    FOREIGN KEY (run_id, number) REFERENCES attempts (run_id, number)
) STRICT;

CREATE TABLE tries (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    worst_usd REAL,
    at TEXT NOT NULL,
    FOREIGN KEY (run_id, number, turn) REFERENCES requests (run_id, number, turn)
) STRICT;
CREATE INDEX tries_of_requests ON tries (run_id, number, turn);

CREATE TABLE replies (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    text TEXT NOT NULL,
    reasoning TEXT NOT NULL,
    finish_reason TEXT NOT NULL,
    usage TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (run_id, number, turn),
    FOREIGN KEY (run_id, number, turn) REFERENCES requests (run_id, number, turn)
) STRICT;

CREATE TABLE model_failures (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    usage TEXT NOT NULL,
    last_try INTEGER NOT NULL,
    at TEXT NOT NULL,
    FOREIGN KEY (run_id, number, turn) REFERENCES requests (run_id, number, turn)
) STRICT;
CREATE INDEX model_failures_of_requests ON model_failures (run_id, number, turn);
"""

PACKS = """
CREATE TABLE packs (
    sha256 TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

ALTER TABLE requests ADD COLUMN messages_pack TEXT REFERENCES packs (sha256);
ALTER TABLE replies ADD COLUMN text_pack TEXT REFERENCES packs (sha256);
ALTER TABLE replies ADD COLUMN reasoning_pack TEXT REFERENCES packs (sha256);
ALTER TABLE evaluations ADD COLUMN document_pack TEXT REFERENCES packs (sha256);
"""

FINGERPRINTS = """
CREATE TABLE fingerprints (
    source_sha256 TEXT NOT NULL REFERENCES sources (sha256),
    scheme TEXT NOT NULL,
    program TEXT NOT NULL,
    skeleton TEXT NOT NULL,
    checksum INTEGER,
    PRIMARY KEY (source_sha256, scheme)
) STRICT;
"""

CHECKSUMMED_BY_0004 = (
    "runs",
    "attempts",
    "outcomes",
    "candidates",
    "parents",
    "evaluations",
    "tellings",
    "events",
    "requests",
    "tries",
    "replies",
    "model_failures",
)

CHECKSUMMED = (*CHECKSUMMED_BY_0004, "fingerprints")
"""Tables whose rows carry a checksum; the keys of the others are the sha256 of what they hold."""


def guard(table: str, verb: str) -> str:
    """The trigger that refuses `verb` on an append-only table."""
    return (
        f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} BEGIN "
        f"SELECT RAISE(ABORT, '{table} is append-only'); END;"
    )


@MIGRATIONS(name="0001_history")
def history(db: Database) -> None:
    """The append-only record: problems, runs, attempts, candidates, evaluations, tellings, events."""
    db.executescript(HISTORY)
    for table in APPEND_ONLY:
        db.execute(guard(table, "UPDATE"))
        db.execute(guard(table, "DELETE"))


@MIGRATIONS(name="0002_leases")
def leases(db: Database) -> None:
    """Who works on a run now."""
    db.executescript(LEASES)


@MIGRATIONS(name="0003_conversations")
def conversations(db: Database) -> None:
    """What models were asked, what they answered, and what it cost."""
    db.executescript(CONVERSATIONS)
    for table in ("requests", "tries", "replies", "model_failures"):
        db.execute(guard(table, "UPDATE"))
        db.execute(guard(table, "DELETE"))


@MIGRATIONS(name="0004_packs")
def packs(db: Database) -> None:
    """Compressed texts, and a checksum in every row; rows of before have none."""
    db.executescript(PACKS)
    for table in CHECKSUMMED_BY_0004:
        db.execute(f"ALTER TABLE {table} ADD COLUMN checksum INTEGER")
    db.execute(guard("packs", "UPDATE"))
    db.execute(guard("packs", "DELETE"))


@MIGRATIONS(name="0005_fingerprints")
def fingerprints(db: Database) -> None:
    """Digests of sources, so that a run that goes on need not make them again; sources of before have none yet."""
    db.executescript(FINGERPRINTS)
    db.execute(guard("fingerprints", "UPDATE"))
    db.execute(guard("fingerprints", "DELETE"))


VERSIONS = ("0001_history", "0002_leases", "0003_conversations", "0004_packs", "0005_fingerprints")
"""Migration names in order; a database's `user_version` is how many of them it holds."""

SCHEMA_VERSION = len(VERSIONS)
