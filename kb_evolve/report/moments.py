"""Recorded times as numbers; a database of unknown origin may hold anything in their place."""

from __future__ import annotations

import functools
from datetime import datetime


@functools.lru_cache(maxsize=1 << 16)
def moment(at: str) -> float:
    """Seconds since the epoch of a UTC ISO 8601 time; ValueError for another text."""
    return datetime.fromisoformat(at).timestamp()


def is_moment(at: object) -> bool:
    """Whether a text is such a time."""
    try:
        moment(str(at))
    except (ValueError, OverflowError, OSError):
        return False
    return True
