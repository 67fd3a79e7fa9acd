"""Tables and untrusted texts for a terminal: they fit its width, and nothing in them is obeyed by it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from unicodedata import combining, east_asian_width

from kb_evolve.report.text import one_line, visible

GAP = 2
PIECE = 200
"""Characters that are spelled at once; `visible` cuts longer lines."""


def screen_width() -> int | None:
    """Columns of the terminal that stdout is; None where it is none: a pipe gets every cell whole."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int | None,
    *,
    shrink: Mapping[str, int],
    drop: Sequence[str] = (),
) -> str:
    """A table of at most `width` columns, as far as that is possible.

    Cells of the columns in `shrink` are cut down to so many places, then the columns in `drop` are left out one by one,
    each only where that is needed.
    """
    names = list(header)
    table = {name: [name, *(one_line(row[at]) for row in rows)] for at, name in enumerate(header)}
    widest = {name: max(map(cell_len, cells)) for name, cells in table.items()}
    for name in (*drop, None):
        widths = _shrunk({name: widest[name] for name in names}, width, shrink)
        if width is None or sum(widths.values()) + GAP * (len(names) - 1) <= width or name is None:
            break
        names.remove(name)
    lines = []
    for at in range(len(rows) + 1):
        cells = (_filled(_cut(table[name][at], widths[name]), widths[name]) for name in names)
        lines.append((" " * GAP).join(cells).rstrip())
    return "\n".join(lines)


def _shrunk(widths: dict[str, int], width: int | None, shrink: Mapping[str, int]) -> dict[str, int]:
    """The widths, those of `shrink` made smaller, the widest first, until the table fits or none can be smaller."""
    if width is None:
        return widths
    excess = sum(widths.values()) + GAP * (len(widths) - 1) - width
    while excess > 0:
        able = [name for name in shrink if widths.get(name, 0) > shrink[name]]
        if not able:
            break
        widths[max(able, key=lambda name: widths[name])] -= 1
        excess -= 1
    return widths


def _cut(cell: str, width: int) -> str:
    if cell_len(cell) <= width:
        return cell
    while cell and cell_len(cell) > width - 1:
        cell = cell[:-1]
    return cell + "…"


def _filled(cell: str, width: int) -> str:
    return cell + " " * (width - cell_len(cell))


def cell_len(text: str) -> int:
    """Columns of a terminal that `text` takes (Unicode's annex 11: wide characters two, marks on another one none).

    Not rich's: the commands that a machine with a judge alone needs do without it.
    """
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


NARROWEST = 24
"""Columns that a wrapped text needs; where fewer are left behind its head, it begins a line of its own."""
OWN_INDENT = 4
"""Blanks before such a text."""


def wrapped(head: str, text: str, width: int | None, most: int | None = None) -> str:
    """`text` behind `head` in `width` columns, its further lines below its first; of more than `most` the rest is `…`.

    Without a width one line.
    """
    import textwrap

    if width is None:
        return head + text
    indent = cell_len(head)
    own = indent > 0 and width - indent < NARROWEST
    indent = OWN_INDENT if own else indent
    room = max(width - indent, 1)
    lines = textwrap.wrap(text, room, max_lines=most, placeholder=" …", break_on_hyphens=False) or [""]
    return (head.rstrip() + "\n" + " " * indent if own else head) + ("\n" + " " * indent).join(lines)


def spelled(text: str) -> str:
    r"""The whole text with nothing hidden in it: escapes and marks that reorder it become `\x1b` and so on."""
    text = text.replace("\r\n", "\n")
    return "".join(visible(text[at : at + PIECE], PIECE) for at in range(0, len(text), PIECE))


def exact_or_spelled(text: str) -> str:
    """The text as it is for a file or a pipe, spelled for a terminal, which would obey it."""
    return spelled(text) if sys.stdout.isatty() else text


def age_text(seconds: float) -> str:
    """`42 s`, `12 min`, `5 h`, `3 d`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
