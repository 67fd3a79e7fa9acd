"""JSON text for the database: exact round trips, and only text that SQLite's own JSON functions read."""

from __future__ import annotations

import json
import math
from typing import Any

NON_FINITE = "$float"
"""Key of the object that stands for a number that JSON cannot write: `{"$float": "nan"}`."""


def encode(value: Any) -> str:
    """Compact ASCII JSON of `value`; NaN and infinities survive. TypeError for what JSON cannot hold."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_named(value), allow_nan=False, separators=(",", ":"))


def decode(text: str) -> Any:
    """The value that `encode` wrote; tuples come back as lists."""
    return json.loads(text, object_hook=_float_or_object)


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


def plain(text: str) -> str:
    """`text` that UTF-8 can hold: lone surrogates, which a model may send, become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
