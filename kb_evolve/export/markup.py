"""Untrusted text inside Markdown: shown as it is, and unable to become markup."""

from __future__ import annotations

import re

from kb_evolve.report.text import one_line, visible

BLOCK_LIMIT = 50_000
"""Characters of one block: GitHub takes 65,536 in an issue."""


def code(text: object, limit: int = 300) -> str:
    """The text as one inline code span: no markup, no mention, no link comes out of it (CommonMark 0.31, 6.1)."""
    line = one_line(text, limit)
    if not line.strip("` "):
        line = f"{line} " if line else "(empty)"
    fence = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def block(text: str, language: str = "") -> str:
    """The text as a fenced block whose fence is longer than any run of backticks in it (CommonMark 0.31, 4.5)."""
    shown = visible(text, BLOCK_LIMIT)
    fence = "`" * max(3, _longest_run(shown) + 1)
    return f"{fence}{language}\n{shown.rstrip(chr(10))}\n{fence}"


def is_whole(text: str) -> bool:
    """Whether `block` shows the text to its last character."""
    return visible(text, BLOCK_LIMIT) == text


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
