"""Making a database smaller without forgetting anything: prompts, replies and logs of builds, compressed in place.

A text moves into `packs` under its sha256, so that equal ones are kept once, and a short stand-in stays in its row.
Whoever reads through the store sees no difference. With the modules that store.py names this one speaks SQL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from islands.codec import decode, deflate, encode, inflate
from islands.database import StoreError, connect, immediate, translated
from islands.integrity import living
from islands.migrations import guard
from islands.records import PACKED

SMALLEST_BYTES = 512
"""Texts that would save less than this stay as they are: a row of `packs` costs about 100 bytes."""

BATCH = 200
"""Rows packed in one transaction; runs that write wait for one batch at most."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    texts: int
    """Texts packed now."""
    text_bytes: int
    """Their length in UTF-8."""
    packed_bytes: int
    """What they take now; equal texts are kept once."""
    before_bytes: int
    """Size of the file with its log."""
    after_bytes: int
    is_shrunk: bool
    """False when a living process holds a run: the freed pages are reused, but stay in the file."""


def compact(path: Path) -> Compacted:
    """Packs all texts that are worth it, and gives freed space back to the file system unless a run is at work.

    Every batch is one transaction that is verified before it is kept: a kill, or a full disk, loses nothing, and the
    same call goes on from there. StoreError for a file that cannot be used.
    """
    if not path.exists():
        raise StoreError(f"there is no database at {path}. `kb-evolve run` creates one; --db names another file.")
    with closing(connect(path, read_only=False)) as db, translated(path):
        before = _size(path)
        texts = text_bytes = packed_bytes = 0
        for table, columns in PACKED.items():
            for column in columns:
                done = _pack_column(db, table, column)
                texts, text_bytes, packed_bytes = texts + done[0], text_bytes + done[1], packed_bytes + done[2]
        is_shrunk = not living(db)
        if is_shrunk:
            db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Compacted(texts, text_bytes, packed_bytes, before, _size(path), is_shrunk)


def _pack_column(db: Database, table: str, column: str) -> tuple[int, int, int]:
    """Texts, their bytes and the bytes of new packs."""
    texts = text_bytes = packed_bytes = last = 0
    select = (
        f"SELECT rowid, {column} FROM {table} WHERE rowid > ? AND {column}_pack IS NULL "
        f"AND length({column}) >= {SMALLEST_BYTES} ORDER BY rowid LIMIT {BATCH}"
    )
    while True:
        with immediate(db):
            rows = db.execute(select, [last]).fetchall()
            if not rows:
                return texts, text_bytes, packed_bytes
            db.execute(f"DROP TRIGGER {table}_no_update")  # kept or undone with the rest of the transaction
            for rowid, text in rows:
                written = _pack(db, table, column, (rowid, text))
                if written is not None:
                    texts, text_bytes, packed_bytes = texts + 1, text_bytes + len(text.encode()), packed_bytes + written
            db.execute(guard(table, "UPDATE"))
        last = rows[-1][0]


def _pack(db: Database, table: str, column: str, row: tuple[int, str]) -> int | None:
    """Bytes of the new pack, 0 for one that was there; None for a text that stays as it is."""
    rowid, text = row
    stub, body = STUBS[column](text), deflate(text)
    if len(stub.encode()) + len(body) + SMALLEST_BYTES > len(text.encode()) or inflate(body) != text:
        return None
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    values = [sha256, len(text.encode()), body]
    added = db.execute("INSERT INTO packs VALUES (?, ?, ?) ON CONFLICT DO NOTHING", values).rowcount
    db.execute(f"UPDATE {table} SET {column} = ?, {column}_pack = ? WHERE rowid = ?", [stub, sha256, rowid])
    return len(body) if added else 0


STUBS: dict[str, Callable[[str], str]] = {
    "messages": lambda text: "[]",
    "text": lambda text: "",
    "reasoning": lambda text: "",
    "document": lambda text: encode(decode(text) | {"log": ""}),
}
"""What stays in a row: of an evaluation everything but its log, so that SQL still finds its figures."""


def _size(path: Path) -> int:
    files = (Path(f"{path.resolve()}{suffix}") for suffix in ("", "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
