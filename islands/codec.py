"""JSON text for the database: exact round trips, and only text that SQLite's own JSON functions read."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

NON_FINITE = "$float"
"""Key of the object that stands for a number that JSON cannot write: `{"$float": "nan"}`."""


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def encode(value: Any) -> str:
    """Compact ASCII JSON of `value`; NaN and infinities survive. TypeError for what JSON cannot hold."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(_named(value))


def decode(text: str) -> Any:
    """The value that `encode` wrote; tuples come back as lists."""
    return _DECODER.decode(text)


def _named(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {NON_FINITE: repr(value)}
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_named(item) for item in value]
    return value


def _float_or_object(value: dict[str, Any]) -> Any:
    if len(value) == 1 and value.get(NON_FINITE) in ("nan", "inf", "-inf"):
        return float(value[NON_FINITE])
    return value


_DECODER = json.JSONDecoder(object_hook=_float_or_object)


def plain(text: str) -> str:
    """`text` that UTF-8 can hold: lone surrogates, which a model may send, become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def deflate(text: str) -> bytes:
    """The UTF-8 of `text` as a zlib stream (RFC 1950), which every supported Python and SQLite's own shell can read.

    Not zstd: the standard library has it from Python 3.14 on, and a file that one Python compacted must open in all.
    """
    return zlib.compress(text.encode(), 9)


def inflate(body: bytes | None) -> str:
    """The text that `deflate` was given. ValueError when the bytes are missing or damaged."""
    if body is None:
        raise ValueError("a compressed text is missing")
    try:
        return zlib.decompress(body).decode()
    except zlib.error as error:
        raise ValueError(f"a compressed text is damaged: {error}") from error


UNSUMMED = frozenset({"checksum", "document", "verdict", "speedup", "evaluation_id", "last_try"})
"""Columns outside a row's checksum: itself; what has a sha256 or follows from it; numbers that only one file knows."""


def checksum(row: Mapping[str, Any]) -> int:
    """CRC-32 of a row's names and values; the same in every file that holds the row, packed or not."""
    summed = {
        name: float(value) if isinstance(value, int | float) else value
        for name, value in row.items()
        if name not in UNSUMMED and not name.endswith("_pack") and value is not None
        if not (name == "id" and isinstance(value, int))
    }
    return zlib.crc32(encode(sorted(summed.items())).encode())
