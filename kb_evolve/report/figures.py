"""The three figures of a run, as PNG and SVG files that come out the same for the same history."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from islands.run import Attempt
from kb_evolve.report import series
from kb_evolve.report.text import one_line, speedup_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Colours told apart with any colour vision: M. Okabe and K. Ito, Color Universal Design (2008)."""

BEST, ISLANDS = OKABE_ITO[0], (*OKABE_ITO[1:6],)
INK, MUTED, FAINT = "#1f2328", "#656d76", "#d0d7de"

STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.labelsize": 10.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#eaeef2",
    "grid.linewidth": 0.8,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "figure.facecolor": "white",
    "savefig.dpi": 200,
    "svg.hashsalt": "kb_evolve",
}

SIZE_INCHES = (6.6, 3.7)
RASTER_ABOVE = 3_000
"""Points beyond which a scatter in an SVG is an embedded picture, to keep the file small."""


def write_figures(title: str, history: series.History, attempts: Sequence[Attempt], out_dir: Path) -> dict[str, Path]:
    """`progress`, `pareto` and `funnel`, each as .png and .svg in `out_dir`: {file name: path}."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        rc_params: Any = matplotlib.rcParams
        rc_params.update(STYLE)
        figures = {
            "progress": progress(title, history),
            "pareto": pareto(title, history),
            "funnel": funnel(title, history, attempts),
        }
        return {path.name: path for name, figure in figures.items() for path in _save(figure, out_dir / name)}


def progress(title: str, history: series.History) -> Figure:
    """Speedup by evaluation: every correct candidate, each island's best, the best so far and its band."""
    figure, axes = _canvas(title, "Speedup over eager, best so far")
    points = series.correct_points(history)
    if not points:
        return _empty(figure, axes, "no correct candidate yet" if history else "nothing evaluated yet")
    end = len(history)
    _scatter_correct(axes, points)
    _draw_islands(axes, series.island_curves(history), end)
    corners = series.best_so_far(points)
    numbers, lows = _stairs(corners, [corner.low for corner in corners], end)
    _, highs = _stairs(corners, [corner.high for corner in corners], end)
    _, speedups = _stairs(corners, [corner.speedup for corner in corners], end)
    axes.fill_between(numbers, lows, highs, step="post", color=BEST, alpha=0.2, lw=0, label="its 95% interval")
    axes.step(numbers, speedups, where="post", color=BEST, lw=2.4, label="best so far", zorder=4)
    _mark_ends(axes, points[0], corners[-1], end)
    _speedup_axis(axes, points, end)
    handles, labels = _ordered_legend(axes)
    columns = 5 if len(labels) == 5 else 4
    place: Any = {"loc": "outside lower center", "ncols": columns, "columnspacing": 1.2, "handlelength": 1.4}
    figure.legend(handles, labels, **place)
    return figure


def pareto(title: str, history: series.History) -> Figure:
    """Kernel time against peak memory; the colour is the error over the reference's own, the front ringed."""
    figure, axes = _canvas(title, "Time, memory and error of the correct candidates")
    correct = [each for each in history if each.evaluation.is_correct]
    placed = [each for each in correct if each.evaluation.peak_mem_bytes is not None]
    if not placed:
        return _empty(figure, axes, "no peak memory measured" if correct else "no correct candidate yet")
    front = {each.candidate.id for each in series.pareto_front(history)}
    front_placed = [each for each in placed if each.candidate.id in front]
    unit, scale = _memory_unit(placed)
    dots = axes.scatter(
        [each.evaluation.kernel_ms or 0.0 for each in placed],
        [(each.evaluation.peak_mem_bytes or 0) / scale for each in placed],
        c=[_error_colour(each) for each in placed],
        cmap="viridis",
        s=26,
        lw=0,
        alpha=0.85,
        rasterized=len(placed) > RASTER_ABOVE,
    )
    axes.scatter(
        [each.evaluation.kernel_ms or 0.0 for each in front_placed],
        [(each.evaluation.peak_mem_bytes or 0) / scale for each in front_placed],
        s=90,
        facecolors="none",
        edgecolors=OKABE_ITO[5],
        lw=1.6,
        label="Pareto front",
    )
    bar = figure.colorbar(dots, ax=axes, pad=0.02)
    bar.set_label("error / reference's error")
    bar.outline.set_visible(False)
    _log_if_wide(axes.xaxis, [each.evaluation.kernel_ms or 1.0 for each in placed], " ms")
    axes.set(xlabel="kernel time (ms)", ylabel=f"peak memory ({unit})")
    axes.legend(loc="lower right", bbox_to_anchor=(1.02, 0.99), handletextpad=0.2)
    return figure


def funnel(title: str, history: series.History, attempts: Sequence[Attempt]) -> Figure:
    """One bar for each stage from asked to faster than eager: count and share of the stage before."""
    figure, axes = _canvas(title, "From ask to faster kernel")
    stages = series.funnel(history, attempts)
    if not stages[0].count:
        return _empty(figure, axes, "nothing asked yet")
    names = ["faster than eager" if stage.name == "faster" else stage.name for stage in stages]
    counts = [stage.count for stage in stages]
    colours = [BEST] * (len(stages) - 1) + [OKABE_ITO[2]]
    axes.barh(names, counts, color=colours, height=0.68)
    for row, count in enumerate(counts):
        share = f"  ({count / counts[row - 1]:.0%})" if row and counts[row - 1] else ""
        axes.text(count + counts[0] * 0.012, row, f"{count:,}{share}", va="center", fontsize=10)
    axes.invert_yaxis()
    axes.set_xlim(0, counts[0] * 1.18)
    axes.grid(visible=False)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.xaxis.set_visible(False)
    return figure


def _canvas(title: str, subject: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.set_title(subject, loc="left", fontsize=12, fontweight="bold", pad=22)
    subtitle = one_line(title, 90)
    label = axes.text(0, 1.03, subtitle, transform=axes.transAxes, color=MUTED, fontsize=9.5, va="bottom")
    label.set_in_layout(False)  # a long one runs out of the figure instead of squeezing the axes
    return figure, axes


def _empty(figure: Figure, axes: Axes, message: str) -> Figure:
    """The canvas, lower, with nothing but the reason why it is empty."""
    figure.set_size_inches(SIZE_INCHES[0], 1.7)
    axes.set_axis_off()
    axes.text(0.5, 0.5, message, transform=axes.transAxes, ha="center", va="center", fontsize=14, color=MUTED)
    return figure


def _save(figure: Figure, stem: Path) -> list[Path]:
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    figure.savefig(paths[0], metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None})
    return paths


def _stairs(corners: Sequence[series.Point], heights: Sequence[float], end: int) -> tuple[list[int], list[float]]:
    """The corners' numbers and heights, the last height carried on to the last evaluation."""
    return [corner.number for corner in corners] + [end], [*heights, heights[-1]]


def _scatter_correct(axes: Axes, points: Sequence[series.Point]) -> None:
    axes.scatter(
        [point.number for point in points],
        [point.speedup for point in points],
        s=11,
        color="#8c959f",
        alpha=0.65,
        lw=0,
        label="correct candidate",
        rasterized=len(points) > RASTER_ABOVE,
    )


def _draw_islands(axes: Axes, curves: Mapping[int, Sequence[series.Point]], end: int) -> None:
    """Each island's own best: in colours of their own while there are enough, else all in one."""
    if len(curves) < 2:
        return
    coloured = max(curves) < len(ISLANDS)
    for order, (island, corners) in enumerate(curves.items()):
        numbers, speedups = _stairs(corners, [corner.speedup for corner in corners], end)
        colour = ISLANDS[island] if coloured else OKABE_ITO[4]
        label = f"island {island}" if coloured else "_" if order else "each island's best"
        width = 1.2 if coloured else 0.8
        axes.step(numbers, speedups, where="post", color=colour, lw=width, label=label)


def _mark_ends(axes: Axes, first: series.Point, last: series.Point, end: int) -> None:
    """The eager line, a mark on the first correct candidate, and the best one's figure at the right edge."""
    axes.axhline(1.0, color=INK, lw=1, ls=(0, (5, 3)), zorder=1)
    axes.annotate(
        "eager = 1.0",
        (1.0, 1.0),
        xycoords=axes.get_yaxis_transform(),
        xytext=(-2, 3),
        textcoords="offset points",
        ha="right",
        fontsize=9.5,
        path_effects=_halo(),
        zorder=6,
    )
    axes.scatter([first.number], [first.speedup], marker="D", s=46, color=OKABE_ITO[5], zorder=5, label="first (seed)")
    axes.annotate(
        speedup_text(last.speedup, (last.low, last.high)),
        (end, last.speedup),
        xytext=(0, 8),
        textcoords="offset points",
        ha="right",
        color=BEST,
        fontweight="bold",
        path_effects=_halo(),
        zorder=6,
    )


def _halo() -> list[Any]:
    """A white rim that keeps a label readable on dots and lines."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=3, foreground="white")]


def _speedup_axis(axes: Axes, points: Sequence[series.Point], end: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel="evaluation", ylabel="speedup over eager")
    axes.set_xlim(0.5 - 0.01 * end, end + 0.5 + 0.02 * end)
    _log_if_wide(axes.yaxis, [1.0, *(point.speedup for point in points)], "x")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    low, high = axes.get_ylim()
    room = (high / low) ** 0.08 if axes.get_yscale() == "log" else 1.08
    axes.set_ylim(low if axes.get_yscale() == "log" else max(0.0, low), high * room)


def _log_if_wide(axis: Any, values: Sequence[float], unit: str) -> None:
    """A logarithmic axis with plain numbers where the values span more than a factor of five."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if max(values) > 5 * min(values):
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        wide = max(values) > 200 * min(values)
        axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())
    if axis.axis_name == "y" or max(values) > 5 * min(values):
        suffix = "" if unit == " ms" else unit
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{suffix}"))


def _ordered_legend(axes: Axes) -> tuple[list[Any], list[str]]:
    """Handles and labels: best, its interval, candidates, seed, then islands."""
    handles, labels = axes.get_legend_handles_labels()
    order = {"best so far": 0, "its 95% interval": 1, "correct candidate": 2, "first (seed)": 3}
    pairs = sorted(zip(handles, labels, strict=True), key=lambda pair: (order.get(pair[1], 9), pair[1]))
    return [handle for handle, _ in pairs], [label for _, label in pairs]


def _memory_unit(placed: series.History) -> tuple[str, int]:
    largest = max(each.evaluation.peak_mem_bytes or 0 for each in placed)
    return ("GiB", 1 << 30) if largest >= 4 << 30 else ("MiB", 1 << 20) if largest >= 1 << 20 else ("KiB", 1 << 10)


def _error_colour(each: Any) -> float:
    """The error ratio, 0 where it was not measured or is not finite."""
    ratio = each.evaluation.error_ratio
    return float(ratio) if ratio is not None and math.isfinite(ratio) else 0.0
