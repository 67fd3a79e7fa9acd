"""The end of SQLite's write-ahead log: was its last transaction written whole?

Layout and checksum: https://www.sqlite.org/fileformat2.html#the_write_ahead_log (sections 4.1 to 4.4).
"""

from __future__ import annotations

import struct
from pathlib import Path

HEADER = 32
FRAME = 24
LITTLE_ENDIAN_SUMS = 0x377F0682
BIG_ENDIAN_SUMS = 0x377F0683


def wal_note(path: Path) -> str:
    """What is to be said of the log beside the database `path`; "" when it ends with a whole transaction.

    Reads the file while others may write to it, so a transaction that is being written counts as unfinished.
    """
    log = Path(f"{path.resolve()}-wal")
    try:
        size = log.stat().st_size
    except OSError:
        return ""
    unfinished = unfinished_bytes(log) if size else 0
    if not unfinished:
        return ""
    return (
        f"the write-ahead log {log.name} ends inside a transaction ({unfinished} of {size} bytes): a process was "
        f"killed while it wrote, or the disk lost the log's end. What came before is used, this is not"
    )


def unfinished_bytes(log: Path) -> int:
    """Bytes behind the last whole transaction that belong to a newer one, torn off or damaged.

    Frames of an earlier use of the log, which SQLite leaves behind the valid ones, do not count.
    """
    with log.open("rb") as file:
        header = file.read(HEADER)
        if len(header) < HEADER:
            return len(header)
        magic, _, page_size, _, salt1, salt2, sum1, sum2 = struct.unpack(">8I", header)
        if magic not in (LITTLE_ENDIAN_SUMS, BIG_ENDIAN_SUMS) or page_size < 512:
            return log.stat().st_size
        order = ">" if magic == BIG_ENDIAN_SUMS else "<"
        sums = _added((0, 0), header[:24], order)
        if sums != (sum1, sum2):
            return log.stat().st_size
        pending = 0
        while True:
            frame = file.read(FRAME + page_size)
            if len(frame) < 16 or struct.unpack(">2I", frame[8:16]) != (salt1, salt2):
                return pending  # the end, or a frame of an earlier use
            if len(frame) < FRAME + page_size:
                return pending + len(frame)
            sums = _added(_added(sums, frame[:8], order), frame[FRAME:], order)
            if sums != struct.unpack(">2I", frame[16:24]):
                return pending + len(frame)
            is_commit = struct.unpack(">I", frame[4:8])[0] != 0
            pending = 0 if is_commit else pending + len(frame)


def _added(sums: tuple[int, int], content: bytes, order: str) -> tuple[int, int]:
    """The log's running checksum over more content, a multiple of 8 bytes."""
    first, second = sums
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & 0xFFFFFFFF
        second = (second + words[index + 1] + first) & 0xFFFFFFFF
    return first, second
