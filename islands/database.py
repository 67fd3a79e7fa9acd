"""Opening the database file, and refusing, in one paragraph, every file that is not safe to use."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlite_utils import Database

from islands.codec import inflate
from islands.migrations import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from islands.novelty import scheme

BUSY_TIMEOUT_S = 30.0
CACHE_KIB = 8_192
"""Of pages held by a writer: those of the indexes of a hundred thousand candidates, four times SQLite's own."""

NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "fuse.sshfs"})
"""Where SQLite's write-ahead log cannot work: its index is memory shared by processes of one machine
(https://www.sqlite.org/wal.html, "all processes using a database must be on the same host")."""

MAGIC = b"SQLite format 3\0"


class StoreError(Exception):
    """A database that cannot be used, or a record that must not be written; says what to do next."""


def connect(path: Path, read_only: bool) -> Database:
    """The open, checked and migrated database. StoreError for every file that is not safe to use."""
    try:
        _refuse_path(path, read_only)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be reached: {error}. Check its folders, or name another.") from error
    with translated(path):
        db = Database(_connection(path, read_only), execute_plugins=False)
        try:
            _prepare(db, path, read_only)
        except BaseException:
            db.close()
            raise
    return db


def _connection(path: Path, read_only: bool) -> sqlite3.Connection:
    options = "mode=rwc"
    if read_only:
        # A file that nobody has open leaves no -wal file; in a folder where we cannot create one, SQLite
        # can read it only when told that nobody writes.
        real = path.resolve()
        closed = not Path(f"{real}-wal").exists() and not _writable(real.parent)
        options = "mode=ro&immutable=1" if closed else "mode=ro"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        check_same_thread=False,
        isolation_level=None,
    )
    connection.create_function("inflate", 1, inflate, deterministic=True)
    connection.create_function("novelty_scheme", 0, scheme, deterministic=True)
    return connection


def _prepare(db: Database, path: Path, read_only: bool) -> None:
    version = _version(db, path)
    if read_only:
        if version < SCHEMA_VERSION:
            raise StoreError(
                f"{path} has schema version {version}, this kb_evolve reads version {SCHEMA_VERSION}. Open "
                f"it once for writing (any `kb-evolve run` on it) and it is migrated in place."
            )
        return
    _enable_wal(db, path)
    db.execute("PRAGMA synchronous = FULL")
    if version < SCHEMA_VERSION:
        _migrate(db, path)
    db.execute("PRAGMA foreign_keys = ON")
    db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    finding = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if finding != "ok":
        raise _corrupt(path, finding)


def _version(db: Database, path: Path) -> int:
    """The file's schema version; StoreError when the file is not ours or newer than this program."""
    with db.atomic():  # one moment's view: another process may be making this very file
        application_id = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        has_tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] > 0
    if application_id != APPLICATION_ID and (application_id or version or has_tables):
        raise StoreError(
            f"{path} is a SQLite database of another program (application id {application_id:#x}, expected "
            f"{APPLICATION_ID:#x}); nothing was written to it. Name another file with --db."
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer kb_evolve: it has schema version {version}, this program knows "
            f"up to {SCHEMA_VERSION}; nothing was changed. Update kb_evolve, or name another file with --db."
        )
    return int(version)


def _migrate(db: Database, path: Path) -> None:
    with immediate(db):
        if _version(db, path) < SCHEMA_VERSION:  # another process may have migrated it meanwhile
            MIGRATIONS.apply(db)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _enable_wal(db: Database, path: Path) -> None:
    """Switch to write-ahead logging. SQLite does not wait by itself when another process does the same."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            if error_name(error) != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    if mode != "wal":
        raise StoreError(
            f"{path} cannot use write-ahead logging (journal mode stays {mode!r}): the file system offers no "
            f"shared memory, or the file is read-only. Name a file on a local, writable disk with --db."
        )


@contextmanager
def immediate(db: Database) -> Iterator[None]:
    """One transaction that holds the write lock from its first read; rolled back on any exception."""
    db.conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.conn.execute("COMMIT")
    except BaseException:
        if db.conn.in_transaction:
            db.conn.execute("ROLLBACK")
        raise


def _refuse_path(path: Path, read_only: bool) -> None:
    if path.is_dir():
        raise StoreError(
            f"{path} is a folder, expected a database file. Name a file in it: --db {path / 'kb_evolve.db'}"
        )
    folder = path.resolve().parent
    if not folder.is_dir():
        raise StoreError(f"the folder {folder} of the database {path.name} does not exist. Create it, or name another.")
    if read_only and not path.exists():
        raise StoreError(f"there is no database at {path}. `kb-evolve run` creates one; --db names another file.")
    kind = file_system(path.resolve(), _mounts())
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"{path} lies on a network file system ({kind}), where SQLite loses data: locks and the shared "
            f"memory of the write-ahead log do not reach other machines. Name a file on a local disk (--db)."
        )
    if not read_only:
        _refuse_unwritable(path, folder)
    _refuse_other_formats(path)


def _refuse_unwritable(path: Path, folder: Path) -> None:
    if path.exists() and not _writable(path):
        raise StoreError(f"{path} is read-only for this user. Make it writable, or name another file with --db.")
    if not _writable(folder):
        raise StoreError(
            f"the folder {folder} is read-only for this user, and the database {path.name} needs its -wal "
            f"and -shm files beside it. Make the folder writable, or name a file in another one with --db."
        )


def _refuse_other_formats(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_file():
        raise StoreError(f"{path} is not a regular file, expected a database. Name another file with --db.")
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
    except OSError as error:
        advice = "Make it readable, or name another file."
        if not isinstance(error, PermissionError):
            advice = "If that may pass, run the same command again; else look after the disk, or name another file."
        raise StoreError(f"{path} cannot be read: {error.strerror}. {advice}") from error
    if head and head != MAGIC:
        raise StoreError(
            f"{path} is not a SQLite database: it begins with {head!r}, expected {MAGIC!r}; nothing was "
            f"written to it. Name another file with --db, or restore this one from a copy."
        )


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return ""


def file_system(path: Path, mountinfo: str) -> str:
    """Type of the file system that holds `path` (absolute, resolved); "" where `mountinfo` does not say.

    `mountinfo` is the text of /proc/self/mountinfo (proc(5)): the mount point is the fifth field, with
    spaces written as octal escapes; the type is the first field after the lone `-`. Of mounts on the same
    point the last one is visible.
    """
    found, longest = "", -1
    for line in mountinfo.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5 or not right:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        if path.is_relative_to(point) and len(point) >= longest:
            found, longest = right.split(" ")[0], len(point)
    return found


def error_name(error: sqlite3.Error) -> str:
    """SQLite's name of the error, such as `SQLITE_BUSY`, without its extended part where that says little."""
    name = getattr(error, "sqlite_errorname", None) or ""
    for family in ("SQLITE_BUSY", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CORRUPT", "SQLITE_CANTOPEN"):
        if name.startswith(family):
            return family
    return name


def _corrupt(path: Path, finding: str) -> StoreError:
    """SQLite gives the same answer to a page that is damaged and to one that could not be read just now."""
    what = " ".join(finding.split())
    return StoreError(
        f"{path} is corrupt, or the disk failed to read it ({what}); nothing was written to it. Look with `kb-evolve "
        f"db check --db {path}`: when that finds nothing, run the same command again. Else put a backup back with "
        f"`kb-evolve db restore`, or save what is left with `sqlite3 {path} .recover`."
    )


ADVICE = {
    "SQLITE_FULL": "the disk is full; the last record was not kept, everything before it was. Free space and "
    "run the same command again: it resumes.",
    "SQLITE_IOERR": "the disk failed to read or write; the last record was not kept. Check the disk, then "
    "run the same command again: it resumes.",
    "SQLITE_BUSY": f"another process has held the write lock for {BUSY_TIMEOUT_S:.0f} s. See who has the "
    "file open (`fuser` names it), end it, then run the same command again.",
    "SQLITE_READONLY": "the file or its folder is read-only. Make both writable, or name another (--db).",
    "SQLITE_CANTOPEN": "the file, or its -wal and -shm files, cannot be opened. Check that file and folder "
    "are readable and writable and that open files are not at their limit.",
}


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into StoreError that names the file and says what to do."""
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.Error as error:
        name = error_name(error)
        if name in ("SQLITE_CORRUPT", "SQLITE_NOTADB") or "user-defined function raised" in str(error):
            raise _corrupt(path, str(error)) from error
        advice = ADVICE.get(name, "this is unexpected: report it with this text.")
        raise StoreError(f"{path}: {error} ({name or 'no code'}): {advice}") from error


def broken(error: sqlite3.IntegrityError) -> str:
    """What a violated constraint means for whoever wrote the row."""
    name = error.sqlite_errorname
    if name in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY"):
        return "it is recorded already. Nothing was written, so nothing is counted twice."
    if name == "SQLITE_CONSTRAINT_FOREIGNKEY":
        return "it refers to a run, an attempt or a parent that is not recorded. Record that first."
    if name == "SQLITE_CONSTRAINT_TRIGGER":
        return "records are appended and never changed."
    return "the value is not one that the schema allows."
