"""Numbers and untrusted text as people read them."""

from __future__ import annotations

import unicodedata

LINE_LIMIT = 400
"""Characters of one line that a report shows."""

INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories that are drawn as nothing or reorder what stands around them."""


def visible(text: object, limit: int = 2_000) -> str:
    r"""`text` with nothing hidden in it, at most about `limit` characters, tab and newline kept.

    Control characters (terminal escapes), marks that reverse the reading direction, zero-width
    characters and lone surrogates become `\x1b`, `\u202e` and so on. What is cut is counted.
    """
    text = str(text)
    shown = "".join(_spell(character) for character in text[:limit].replace("\r\n", "\n"))
    lines = [_cut(line, LINE_LIMIT) for line in shown.split("\n")]
    hidden = len(text) - limit
    return "\n".join(lines) + (f" … [{hidden:,} more characters]" if hidden > 0 else "")


def one_line(text: object, limit: int = 200) -> str:
    """`visible(text)` with every run of white space as one space."""
    return " ".join(visible(text, limit).split())


def plain_title(problem_id: str) -> str:
    """The problem's id in one line; of a path, the file's name."""
    name = problem_id.removesuffix(".py")
    return one_line(name.rsplit("/", 1)[-1] if name != problem_id else name, 120)


def speedup_text(speedup: float | None, interval: tuple[float, float] | None = None) -> str:
    """`1.24x [1.19, 1.30]`; a dash where there is no speedup."""
    if speedup is None:
        return "–"
    figure = f"{_significant(speedup)}x"
    return f"{figure} [{_significant(interval[0])}, {_significant(interval[1])}]" if interval else figure


def ms_text(milliseconds: float | None) -> str:
    """Three significant digits and the unit that suits: `812 us`, `1.24 ms`, `2.50 s`."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1:
        return f"{_significant(milliseconds * 1e3)} us"
    return f"{_significant(milliseconds)} ms" if milliseconds < 1e3 else f"{_significant(milliseconds / 1e3)} s"


def bytes_text(count: float | None) -> str:
    """Binary units: `1.50 MiB`."""
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} B" if unit == "B" else f"{_significant(count)} {unit}"


def rate_text(per_s: float, unit: str) -> str:
    """Decimal units: `1.98 TB/s`, `67.0 TFLOP/s`."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if per_s >= size:
            return f"{_significant(per_s / size)} {prefix}{unit}"
    return f"{_significant(per_s)} {unit}"


def seconds_text(seconds: float | None) -> str:
    """`42 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def time_unit(longest_s: float) -> tuple[float, str]:
    """Seconds in the unit in which a duration of that length is best drawn, and the unit's name."""
    return (3600.0, "h") if longest_s > 2 * 3600 else (60.0, "min") if longest_s > 120 else (1.0, "s")


def number_text(value: float | None) -> str:
    """Three significant digits, in exponent form from a million and below a ten-thousandth; a dash for None."""
    if value is None:
        return "–"
    return f"{float(f'{value:.3g}'):,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"


def _significant(value: float) -> str:
    """Three significant digits, never in exponent form below 1e6."""
    if value >= 100:
        return f"{value:.0f}" if value < 1e6 else f"{value:.3g}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def _spell(character: str) -> str:
    """The character itself, or its escape where it would not be seen."""
    if character in "\n\t" or unicodedata.category(character) not in INVISIBLE:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def _cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else f"{line[:limit]} … [{len(line) - limit:,} more in this line]"
