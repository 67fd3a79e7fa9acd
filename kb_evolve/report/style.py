"""How the figures look, and how they are saved: light and dark, PNG and SVG, the same bytes for the same history.

A figure is drawn once, in light colours; its dark form is the same drawing with every colour of ours replaced.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb_evolve.report.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OKABE_ITO = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000")
"""Colours told apart with any colour vision: M. Okabe and K. Ito, Color Universal Design (2008)."""

BEST, GOOD, BAD = OKABE_ITO[0], OKABE_ITO[2], OKABE_ITO[5]
ISLANDS = (*OKABE_ITO[1:6],)
INK, MUTED, DOT, GRID, PAPER = "#1f2328", "#656d76", "#8c959f", "#eaeef2", "#ffffff"

DARK = {
    INK: "#e4e8ee",
    MUTED: "#9aa5b1",
    DOT: "#a8b3bf",
    GRID: "#2a313a",
    PAPER: "#14171c",
    "#0072b2": "#6cb8ec",
    "#e69f00": "#f0b43c",
    "#009e73": "#4fd0a5",
    "#cc79a7": "#e3a1c6",
    "#56b4e9": "#9bd6ff",
    "#d55e00": "#ff8f4d",
    "#000000": "#e4e8ee",
}
"""Light colour -> dark colour: at least 3:1 against the dark paper (WCAG 2.2, 1.4.11), text at least 4.5:1."""

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.labelsize": 10.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": PAPER,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "figure.facecolor": PAPER,
    "savefig.facecolor": "auto",
    "savefig.dpi": 200,
    "svg.hashsalt": "kb_evolve",
}

PNG: dict[str, Any] = {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}}
"""Level 3 takes two thirds of the time of level 6, for files a tenth larger; level 1 takes no less."""

SIZE_INCHES = (6.6, 3.7)
DOTS = 1_500
"""Most dots of a scatter; of more candidates evenly spaced ones are drawn, and the caption says so. At column width
more run into each other, and four scatters of 10,000 would make a page of 8 MB."""

_COLOUR = re.compile(r"#[0-9a-f]{6}\b")


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Within it figures are drawn in our style, whatever the user's own settings are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        rc_params: Any = matplotlib.rcParams
        rc_params.update(STYLE)
        yield


def canvas(title: str, subject: str, height: float = SIZE_INCHES[1]) -> tuple[Figure, Axes]:
    """A figure of column width with one pair of axes; `height` in inches."""
    figure = _figure(height)
    axes = figure.subplots()
    head(axes, title, subject)
    return figure, axes


def two_canvas(title: str, subject: str, *, stacked: bool = False) -> tuple[Figure, tuple[Axes, Axes]]:
    """The same with two pairs of axes, beside or, sharing the lower abscissa, above each other."""
    figure = _figure(4.4 if stacked else SIZE_INCHES[1])
    found: Any = figure.subplots(2, 1, sharex=True) if stacked else figure.subplots(1, 2)
    head(found[0], title, subject)
    return figure, (found[0], found[1])


def head(axes: Axes, title: str, subject: str) -> None:
    """What the figure shows, and of what."""
    heading = axes.set_title(subject, loc="left", fontsize=12, fontweight="bold", pad=22)
    subtitle = one_line(title, 90)
    label = axes.text(0, 1.03, subtitle, transform=axes.transAxes, color=MUTED, fontsize=9.5, va="bottom")
    for text in (heading, label):
        text.set_in_layout(text is heading)  # a long one runs out of the axes instead of squeezing them


def empty(figure: Figure, axes: Axes, message: str) -> Figure:
    """The canvas, lower, with nothing but the reason why it is empty."""
    figure.set_size_inches(SIZE_INCHES[0], 1.7)
    axes.set_axis_off()
    axes.text(0.5, 0.4, message, transform=figure.transFigure, ha="center", va="center", fontsize=14, color=MUTED)
    figure.set_label(f"{axes.get_title(loc='left')}: {message}")
    return figure


def blank_reason(figure: Figure) -> str:
    """What the figure would show and why it is empty; nothing of one that is not."""
    return str(figure.get_label())


def halo() -> list[Any]:
    """A rim of paper that keeps a label readable on dots and lines."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=3, foreground=PAPER)]


def log_if_wide(axis: Any, values: Sequence[float], unit: str = "") -> None:
    """A logarithmic axis with plain numbers where the values span more than a factor of five."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    is_wide = max(values) > 5 * min(values)
    if is_wide:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        sparse = max(values) > 200 * min(values)
        axis.set_major_locator(LogLocator(subs=(1.0,) if sparse else (1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())
    if axis.axis_name == "y" or is_wide:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{unit}"))


def save(figure: Figure, stem: Path) -> list[Path]:
    """NAME.png, NAME.svg, NAME-dark.png and NAME-dark.svg."""
    paths = [stem.with_name(f"{stem.name}{shade}.{kind}") for shade in ("", "-dark") for kind in ("png", "svg")]
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata={"Date": None})
    figure.set_layout_engine(None)  # where everything stands is found; finding it again takes longer than drawing
    figure.savefig(paths[0], **PNG)
    paths[1].write_text(svg.getvalue(), encoding="utf-8")
    darken(figure)
    figure.savefig(paths[2], **PNG)
    paths[3].write_text(dark_svg(svg.getvalue()), encoding="utf-8")
    return paths


def dark_svg(svg: str) -> str:
    """The drawing with our colours as they are on dark paper."""
    return _COLOUR.sub(lambda found: DARK.get(found[0], found[0]), svg)


def darken(figure: Figure) -> None:
    """The same to a figure: texts, lines, areas and the rims around texts."""
    from matplotlib.text import Text

    for artist in figure.findobj():
        for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
            _replace(artist, name)
        if isinstance(artist, Text):
            for effect in artist.get_path_effects():
                effect._gc["foreground"] = DARK[PAPER]  # type: ignore[attr-defined]


def _replace(artist: Any, name: str) -> None:
    """Sets a colour of ours to its dark form, its transparency kept; a colour map's are left."""
    from matplotlib.colors import to_hex, to_rgba

    get, put = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
    if get is None or put is None or getattr(artist, "get_array", lambda: None)() is not None:
        return
    found = get()
    is_list = hasattr(found, "ndim") and found.ndim == 2
    colours = [to_rgba(colour) for colour in found] if is_list else [_rgba(found)]
    replaced = [(*to_rgba(DARK.get(to_hex(colour[:3]), colour[:3]))[:3], colour[3]) for colour in colours if colour]
    if len(replaced) == len(colours) and replaced:
        put(replaced if is_list else replaced[0])


def _rgba(colour: Any) -> tuple[float, float, float, float] | None:
    """None for `none` and what else is no colour."""
    from matplotlib.colors import to_rgba

    try:
        return to_rgba(colour) if str(colour) not in ("none", "auto") else None
    except ValueError:
        return None


def _figure(height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(SIZE_INCHES[0], height), layout="constrained")
