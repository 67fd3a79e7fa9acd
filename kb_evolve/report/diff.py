"""What changed between two programs, as text that is safe to show."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from kb_evolve.report.text import visible

SOURCE_LIMIT = 60_000
"""Characters of one program that are compared or shown."""

COMPARED_LINES = 2_000
"""Lines of one program that are compared: difflib's time can grow with the square of them."""

LINES_LIMIT = 200
"""Lines of one diff that are shown."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a unified diff; `kind` is one of `added`, `removed`, `place`, `same`, `note`."""

    kind: str
    text: str


def source_text(source: str) -> str:
    """The program as a report shows it: nothing hidden, capped."""
    return visible(source, SOURCE_LIMIT)


def unified(before: str, after: str) -> list[DiffLine]:
    """The unified diff (two lines of context), capped; empty where the two are equal."""
    old, new = (source_text(source).splitlines()[:COMPARED_LINES] for source in (before, after))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]
    shown = [DiffLine(_kind(line), line) for line in lines[:LINES_LIMIT]]
    hidden = len(lines) - LINES_LIMIT
    return [*shown, DiffLine("note", f"… {hidden:,} more lines of this diff")] if hidden > 0 else shown


def _kind(line: str) -> str:
    return {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "same")
