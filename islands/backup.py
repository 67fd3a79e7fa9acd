"""Copies of a database while runs write to it, verified; and putting one back."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from islands.database import StoreError, connect, translated
from islands.integrity import Health, living, one_moment, refuse_damaged, row_counts


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy that was read back in full."""

    path: Path
    size_bytes: int
    rows: dict[str, int]
    """Rows by table."""


def back_up(path: Path, to: Path) -> Backup:
    """Copies the database as it stands at this moment into the new file `to`; runs may go on writing.

    The copy is one file without a log, held by nobody. It appears under its name only when it is on the disk, passes
    every check and holds as many rows as the original. StoreError otherwise, or when `to` exists.
    """
    _refuse_target(to)
    with _partial(to) as partial, closing(connect(path, read_only=True)) as db:
        with translated(path), one_moment(db):
            expected = row_counts(db)
            _copy(db, partial)
        health = refuse_damaged(partial, f"This is the copy of {path}: check that one with `kb-evolve db check`.")
        if health.rows != expected:
            raise StoreError(f"the copy of {path} holds {health.rows}, expected {expected}. Check the disk, try again.")
        size_bytes = partial.stat().st_size
        _publish(partial, to)
    return Backup(to, size_bytes, expected)


def restore(backup: Path, path: Path) -> tuple[Health, tuple[Path, ...]]:
    """Puts a copy of `backup` in the place of the database `path`; what was there is kept beside it.

    Returns the health of what is there now, and where the former files went. StoreError, with nothing moved, when the
    backup is damaged or a living process holds a run of `path`. Killed in between, the same call again completes it.
    """
    if path.exists() and backup.exists() and path.samefile(backup):
        raise StoreError(f"{backup} is the database to restore. Name a copy of it, or another --db.")
    health = refuse_damaged(backup, "Restore from another backup; nothing was changed.")
    _refuse_held(path)
    with _partial(path) as partial:
        with closing(connect(backup, read_only=True)) as db, translated(backup):
            _copy(db, partial)
        refuse_damaged(partial, f"This is the copy of {backup}: check the disk; nothing was changed.")
        aside = _set_aside(path)
        _publish(partial, path)
    return health, aside


def _copy(db: Database, to: Path) -> None:
    """All pages at once: in smaller steps the copy would begin again at every write of another process."""
    with translated(to), closing(sqlite3.connect(to, isolation_level=None)) as target:
        db.conn.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")
        target.execute("DELETE FROM leases")


@contextmanager
def _partial(to: Path) -> Iterator[Path]:
    """A name beside `to` to write under; nothing of that name is left."""
    partial = to.with_name(f".{to.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
    except OSError as error:
        advice = "Free space there or name another file, and run the same command again."
        raise StoreError(f"{to} cannot be written: {error}. {advice}") from error
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            Path(f"{partial}{suffix}").unlink(missing_ok=True)


def _publish(partial: Path, to: Path) -> None:
    sync(partial)
    os.rename(partial, to)
    sync(to.resolve().parent)


def sync(path: Path) -> None:
    """To the disk: a name must not outlive a power cut that its content does not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_target(to: Path) -> None:
    if to.exists():
        raise StoreError(f"{to} exists and would be overwritten. Name another file, or move that one away.")
    if not to.resolve().parent.is_dir():
        raise StoreError(f"the folder {to.resolve().parent} of the backup does not exist. Create it, or name another.")


def _refuse_held(path: Path) -> None:
    try:
        with closing(connect(path, read_only=True)) as db, translated(path):
            held = living(db)
    except StoreError:
        return  # there is none, or it cannot be read: that is why it is restored
    for run, owner in held.items():
        raise StoreError(
            f"run {run} in {path} is held by process {owner.pid} on {owner.host}, which lives. End it, then restore; "
            f"nothing was changed."
        )


def _set_aside(path: Path) -> tuple[Path, ...]:
    """Renames the database and its logs: a log beside another database than its own would damage that one."""
    suffixes = [suffix for suffix in ("", "-wal", "-shm") if Path(f"{path}{suffix}").exists()]
    number = next(n for n in range(1, 10_000) if not any(_old(path, n, suffix).exists() for suffix in ("", "-wal")))
    for suffix in suffixes:
        os.rename(f"{path}{suffix}", _old(path, number, suffix))
    sync(path.resolve().parent)
    return tuple(_old(path, number, suffix) for suffix in suffixes)


def _old(path: Path, number: int, suffix: str) -> Path:
    return path.with_name(f"{path.name}.replaced-{number}{suffix}")
