"""The other figures of a run: trade-offs, map of elites, funnel, times, roofline, load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kb_evolve.report import cells as cells_data
from kb_evolve.report import roofline as roofline_data
from kb_evolve.report import series
from kb_evolve.report import timeline as timeline_data
from kb_evolve.report import timings as timings_data
from kb_evolve.report.curves import sampled
from kb_evolve.report.record import Record
from kb_evolve.report.style import (
    BAD,
    BEST,
    DOT,
    DOTS,
    GOOD,
    INK,
    MUTED,
    OKABE_ITO,
    SIZE_INCHES,
    canvas,
    empty,
    halo,
    log_if_wide,
    two_canvas,
)
from kb_evolve.report.text import rate_text, speedup_text, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIM = "#6b747f"
"""Around dots coloured by a map, one end of which cannot be told from either paper: at least 3:1 against both."""
MOST_COLUMNS, MOST_ROWS = 10, 8
"""Of a map in whose squares figures are written; of more columns every second one is named."""


def pareto(title: str, history: series.History) -> Figure:
    """Kernel time against peak memory; the colour is the error over the reference's own, the front ringed."""
    figure, axes = canvas(title, "Time, memory and error of the correct candidates")
    correct = [each for each in history if each.evaluation.is_correct]
    placed = [each for each in correct if each.evaluation.peak_mem_bytes is not None]
    if not placed:
        return empty(figure, axes, "no peak memory measured" if correct else "no correct candidate yet")
    front = {each.candidate.id for each in series.pareto_front(history)}
    unit, scale = _memory_unit(placed)
    shown = {each.candidate.id for each in sampled(placed, DOTS)} | front
    drawn = [each for each in placed if each.candidate.id in shown]
    dots = axes.scatter(
        *_times_memory(drawn, scale),
        c=[_error_colour(each) for each in drawn],
        cmap="viridis",
        s=26,
        lw=0.8,
        edgecolors=RIM,
        alpha=0.85,
    )
    ringed = _times_memory([each for each in placed if each.candidate.id in front], scale)
    axes.scatter(*ringed, s=90, facecolors="none", edgecolors=BAD, lw=1.6, label="Pareto front")
    bar = figure.colorbar(dots, ax=axes, pad=0.02)
    bar.set_label("error / reference's error")
    bar.outline.set_visible(False)
    log_if_wide(axes.xaxis, [each.evaluation.kernel_ms or 1.0 for each in placed])
    axes.set(xlabel="kernel time (ms)", ylabel=f"peak memory ({unit})")
    axes.legend(loc="lower right", bbox_to_anchor=(1.02, 0.99), handletextpad=0.2)
    return figure


def funnel(title: str, record: Record) -> Figure:
    """One bar for each stage from asked to faster than eager: count and share of the stage before."""
    figure, axes = canvas(title, "From ask to faster kernel")
    stages = series.funnel(record.history, record.attempts)
    if not stages[0].count:
        return empty(figure, axes, "nothing asked yet")
    names = ["faster than eager" if stage.name == "faster" else stage.name for stage in stages]
    counts = [stage.count for stage in stages]
    axes.barh(names, counts, color=[BEST] * (len(stages) - 1) + [GOOD], height=0.68)
    for row, count in enumerate(counts):
        share = f"  ({count / counts[row - 1]:.0%})" if row and counts[row - 1] else ""
        axes.text(count + counts[0] * 0.012, row, f"{count:,}{share}", va="center", fontsize=10)
    axes.invert_yaxis()
    axes.set_xlim(0, counts[0] * 1.18)
    _bare(axes)
    axes.xaxis.set_visible(False)
    return figure


def cells(title: str, record: Record) -> Figure:
    """The map of elites: the best speedup in each square, and how many cells lie in it."""
    figure, axes = canvas(title, "Map of elites: best speedup by kind of kernel")
    found = cells_data.heat_map(record.replayed)
    if found is None:
        return empty(figure, axes, "no cell is occupied")
    values = [[math.nan if value is None else value for value in row] for row in found.speedup]
    image = axes.imshow(values, cmap="viridis", aspect="auto", origin="lower", interpolation="nearest")
    axes.grid(visible=False)
    every = 1 if len(found.x_labels) <= MOST_COLUMNS else 2
    axes.set_xticks(range(0, len(found.x_labels), every), found.x_labels[::every])
    axes.set_yticks(range(len(found.y_labels)), found.y_labels)
    axes.tick_params(length=0, labelsize=9, rotation=0)
    if len(found.x_labels) > 5:
        axes.set_xticks(axes.get_xticks(), found.x_labels[::every], rotation=30, ha="right", rotation_mode="anchor")
    axes.set_xlabel(cells_data.axis_title(found.x_axis))
    if found.y_axis:
        axes.set_ylabel(cells_data.axis_title(found.y_axis))
    else:
        figure.set_size_inches(SIZE_INCHES[0], 2.7)
        axes.set_yticks([])
    if len(found.x_labels) <= MOST_COLUMNS and len(found.y_labels) <= MOST_ROWS:
        _write_squares(axes, found)
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    bar.set_label("speedup over eager")
    bar.outline.set_visible(False)
    return figure


def timings(title: str, record: Record) -> Figure:
    """Left how the times of all programs are spread, right the intervals of the fastest ones."""
    figure, (left, right) = two_canvas(title, "Times of the distinct correct programs")
    found = timings_data.timings(record.history)
    if found is None:
        right.set_visible(False)
        return empty(figure, left, "no correct candidate yet")
    shares = timings_data.shares
    left.step(found.kernel_ms, shares(found.kernel_ms), where="post", color=BEST, lw=2, label="kernels")
    left.step(found.reference_ms, shares(found.reference_ms), where="post", color=MUTED, lw=1.4, label="eager")
    log_if_wide(left.xaxis, [*found.kernel_ms, *found.reference_ms])
    left.set(xlabel="time (ms)", ylabel="share at most this slow", ylim=(0, 1.02))
    place: Any = {"loc": "outside lower center", "ncols": 2}
    figure.legend(*left.get_legend_handles_labels(), **place)
    for row, each in enumerate(found.fastest):
        colour = BEST if each.is_elite else MUTED
        right.plot([each.low, each.high], [row, row], color=colour, lw=2, solid_capstyle="butt")
        right.plot([each.kernel_ms], [row], marker="o", ms=5, color=colour)
    right.set_yticks(range(len(found.fastest)), [f"#{each.number}" for each in found.fastest])
    right.invert_yaxis()
    right.tick_params(axis="y", length=0, labelsize=9)
    right.set_xlabel("time (ms), 95% intervals")
    return figure


def roofline(title: str, record: Record) -> Figure:
    """The device's limits, and how high the kernels come at the problem's intensity."""
    figure, axes = canvas(title, "Roofline")
    found = roofline_data.roofline(record)
    if found is None:
        return empty(figure, axes, roofline_data.why_no_roofline(record))
    _draw_limits(axes, found)
    rates = sampled(sorted(found.rates), DOTS)
    axes.scatter([found.intensity] * len(rates), rates, s=14, color=DOT, lw=0, alpha=0.6, label="correct candidate")
    axes.scatter([found.intensity], [found.reference_rate], marker="s", s=48, color=BAD, label="eager", zorder=4)
    best = f"best: {found.share:.0%} of the limit"
    axes.scatter([found.intensity], [found.best_rate], s=64, color=BEST, label=best, zorder=5)
    axes.set(xlabel="arithmetic over compulsory bytes (FLOP/B)", ylabel="arithmetic rate (FLOP/s)")
    place: Any = {"loc": "outside lower center", "ncols": 3}
    figure.legend(*axes.get_legend_handles_labels(), **place)
    return figure


def _draw_limits(axes: Axes, found: roofline_data.Roofline) -> None:
    """Memory's slope and the arithmetic ceilings, on logarithmic axes of plain numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: rate_text(value, "").strip()))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    top = found.ceilings[-1][1]
    ridge = top / found.bytes_per_s
    low, high = min(found.intensity, ridge) / 8, max(found.intensity, ridge) * 8
    axes.set_xlim(low, high)
    axes.plot([low, ridge, high], [low * found.bytes_per_s, top, top], color=INK, lw=1.6, label="_limit")
    for name, rate in found.ceilings:
        if rate < top:
            axes.plot(
                [max(low, rate / found.bytes_per_s), high], [rate, rate], color=INK, lw=1, ls="--", label="_limit"
            )
        _label(axes, high, rate, f"{name}: {rate_text(rate, 'FLOP/s')}", (-4, 4), "right")
    middle = math.sqrt(low * ridge)
    _label(axes, middle, middle * found.bytes_per_s, rate_text(found.bytes_per_s, "B/s"), (8, -10), "left")


def timeline(title: str, record: Record) -> Figure:
    """Above what was judged in a minute, below how busy judge and builders were, by running time."""
    figure, (upper, lower) = two_canvas(title, "Throughput and load", stacked=True)
    found = timeline_data.timeline(record)
    if found is None:
        lower.set_visible(False)
        return empty(figure, upper, "nothing evaluated yet" if not record.history else "moments are not known")
    unit_s, unit = time_unit(found.edges_s[-1])
    edges = [edge / unit_s for edge in found.edges_s]
    per_minute = 60.0 / (found.edges_s[1] - found.edges_s[0])
    correct = [count * per_minute for count in found.correct]
    both = [(good + bad) * per_minute for good, bad in zip(found.correct, found.failed, strict=True)]
    upper.stairs(both, edges, baseline=correct, fill=True, color=OKABE_ITO[1], label="failed")
    upper.stairs(correct, edges, fill=True, color=GOOD, label="correct")
    lower.stairs(found.judging, edges, color=BEST, lw=2, label="judge")
    lower.stairs(found.building, edges, color=BAD, lw=1.4, ls="--", label="builders")
    upper.set(ylabel="told per minute")
    lower.set(ylabel="busy (seconds\nper second)", xlabel=f"running time ({unit})", xlim=(edges[0], edges[-1]))
    for axes in (upper, lower):
        axes.set_ylim(bottom=0)
        place: Any = {"loc": "lower right", "bbox_to_anchor": (1.01, 0.98), "ncols": 2}
        axes.legend(**place)
    return figure


def _write_squares(axes: Axes, found: cells_data.HeatMap) -> None:
    """The figures, in the colour that can be read on the square."""
    values = [value for row in found.speedup for value in row if value is not None]
    middle = (min(values) + max(values)) / 2
    for y, row in enumerate(found.speedup):
        for x, value in enumerate(row):
            if value is None:
                continue
            colour = "#010101" if value > middle else "#fefefe"  # not our ink and paper: the square stays in the dark
            count = f"\n({found.count[y][x]})" if found.count[y][x] > 1 else ""
            axes.text(x, y, speedup_text(value) + count, ha="center", va="center", fontsize=8, color=colour)


def _label(axes: Axes, x: float, y: float, text: str, offset: tuple[int, int], ha: Any) -> None:
    place: Any = {"xytext": offset, "textcoords": "offset points", "ha": ha}
    axes.annotate(text, (x, y), fontsize=9, color=MUTED, path_effects=halo(), zorder=6, **place)


def _bare(axes: Axes) -> None:
    """Without grid, spines and ticks."""
    axes.grid(visible=False)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=INK)


def _times_memory(placed: Sequence[Any], scale: int) -> tuple[list[float], list[float]]:
    times = [each.evaluation.kernel_ms or 0.0 for each in placed]
    return times, [(each.evaluation.peak_mem_bytes or 0) / scale for each in placed]


def _memory_unit(placed: series.History) -> tuple[str, int]:
    largest = max(each.evaluation.peak_mem_bytes or 0 for each in placed)
    return ("GiB", 1 << 30) if largest >= 4 << 30 else ("MiB", 1 << 20) if largest >= 1 << 20 else ("KiB", 1 << 10)


def _error_colour(each: Any) -> float:
    """The error ratio, 0 where it was not measured or is not finite."""
    ratio = each.evaluation.error_ratio
    return float(ratio) if ratio is not None and math.isfinite(ratio) else 0.0
