"""The figures of a run's progress: best so far against evaluations, time and money, and island by island."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb_evolve.report import charts, curves, series
from kb_evolve.report.record import Record
from kb_evolve.report.style import (
    BAD,
    BEST,
    DOT,
    DOTS,
    INK,
    ISLANDS,
    MUTED,
    OKABE_ITO,
    blank_reason,
    canvas,
    empty,
    halo,
    log_if_wide,
    save,
    styled,
)
from kb_evolve.report.text import seconds_text, speedup_text, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIGRATIONS_DRAWN = 400
"""Most migrations that are marked; of more, evenly spaced ones."""


def write_figures(title: str, record: Record, out_dir: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Every figure of a run in `out_dir`, light and dark, as PNG and SVG: {file name: path}.

    With it, of each figure that has nothing to draw, the reason: {name: sentence}.
    """
    with styled():
        drawn = {
            "progress": progress(title, record),
            "wall": wall(title, record),
            "dollars": dollars(title, record),
            "islands": islands(title, record),
            "cells": charts.cells(title, record),
            "pareto": charts.pareto(title, record.history),
            "funnel": charts.funnel(title, record),
            "timings": charts.timings(title, record),
            "roofline": charts.roofline(title, record),
            "timeline": charts.timeline(title, record),
        }
        files = {path.name: path for name, figure in drawn.items() for path in save(figure, out_dir / name)}
    return files, {name: reason for name, figure in drawn.items() if (reason := blank_reason(figure))}


def progress(title: str, record: Record) -> Figure:
    """Speedup by evaluation: every correct candidate, the best so far and its interval."""
    figure, axes = canvas(title, "Best so far, by evaluation")
    if not _has_correct(record):
        return empty(figure, axes, _nothing(record))
    _draw(figure, axes, record, curves.by_evaluation(record), with_first=True)
    axes.set_xlabel("evaluation")
    _whole_numbers(axes)
    return figure


def wall(title: str, record: Record) -> Figure:
    """The same by the time for which the run had worked."""
    figure, axes = canvas(title, "Best so far, by running time")
    xs = curves.by_wall(record)
    if not _has_correct(record) or not xs:
        return empty(figure, axes, _nothing(record) if record.told_at else "the moments of the tellings are not known")
    unit_s, unit = time_unit(xs[-1])
    _draw(figure, axes, record, [x / unit_s for x in xs])
    axes.set_xlabel(f"running time ({unit}), {seconds_text(xs[-1])} in all")
    return figure


def dollars(title: str, record: Record) -> Figure:
    """The same by what models had cost."""
    figure, axes = canvas(title, "Best so far, by money spent on models")
    xs = curves.by_dollars(record)
    if not _has_correct(record):
        return empty(figure, axes, _nothing(record))
    if not xs or xs[-1] <= 0:
        return empty(figure, axes, "no money was spent on models")
    _draw(figure, axes, record, xs)
    axes.set_xlabel("USD")
    return figure


def islands(title: str, record: Record) -> Figure:
    """Each island's own best by evaluation; a mark where a migrant arrived."""
    figure, axes = canvas(title, "Island by island, with migrations")
    found = curves.island_curves(record)
    if not found:
        return empty(figure, axes, _nothing(record))
    _draw_islands(axes, found)
    marks = curves.sampled(curves.migrations(record), MIGRATIONS_DRAWN)
    _draw_marks(axes, [mark for mark in marks if not mark.is_reset], "v", "a migrant arrives")
    _draw_marks(axes, [mark for mark in marks if mark.is_reset], "X", "an island starts again")
    axes.axhline(1.0, color=INK, lw=1, ls=(0, (5, 3)), zorder=1)
    speedups = [speedup for curve in found.values() for speedup in curve.speedup]
    _speedup_axis(axes, [*speedups, *(mark.speedup for mark in marks)])
    axes.set_xlabel("evaluation")
    _whole_numbers(axes)
    _legend(figure, axes)
    return figure


def _draw(figure: Figure, axes: Axes, record: Record, xs: Sequence[float], *, with_first: bool = False) -> None:
    """Dots, staircase and band over the abscissae of the history."""
    points = series.correct_points(record.history)
    dots = curves.sampled(points, DOTS)
    axes.scatter(
        [xs[point.number - 1] for point in dots],
        [point.speedup for point in dots],
        s=11,
        color=DOT,
        alpha=0.65,
        lw=0,
        label="correct candidate",
    )
    best = curves.best_curve(record, xs)
    if best.x:
        axes.fill_between(best.x, best.low, best.high, step="post", color=BEST, alpha=0.2, lw=0, label="95% interval")
        axes.step(best.x, best.speedup, where="post", color=BEST, lw=2.4, label="best so far", zorder=4)
        _mark_end(axes, best)
    if with_first:
        x, y = xs[points[0].number - 1], points[0].speedup
        axes.scatter([x], [y], marker="D", s=46, color=BAD, zorder=5, label="first (seed)")
    _mark_eager(axes)
    _speedup_axis(axes, [point.speedup for point in points])
    span = (xs[-1] - xs[0]) or 1.0
    axes.set_xlim(xs[0] - 0.02 * span, xs[-1] + 0.02 * span)
    _legend(figure, axes)


def _draw_islands(axes: Axes, found: Mapping[int, curves.Curve]) -> None:
    """In colours of their own while there are enough, else all in one."""
    coloured = max(found) < len(ISLANDS)
    for order, (island, curve) in enumerate(found.items()):
        colour = ISLANDS[island] if coloured else OKABE_ITO[4]
        label = f"island {island}" if coloured else "_" if order else "each island's best"
        width = 1.8 if coloured else 0.8
        axes.step(curve.x, curve.speedup, where="post", color=colour, lw=width, label=label)


def _draw_marks(axes: Axes, marks: Sequence[curves.Mark], marker: str, label: str) -> None:
    """At the speedup of who moved, in the colour of the island that it came to."""
    if not marks:
        return
    colours = [ISLANDS[mark.target] if mark.target < len(ISLANDS) else OKABE_ITO[4] for mark in marks]
    xs, ys = [mark.number for mark in marks], [mark.speedup for mark in marks]
    axes.scatter(xs, ys, marker=marker, s=34, c=colours, edgecolors=INK, lw=0.6, zorder=4)
    axes.scatter([], [], marker=marker, s=34, color=MUTED, edgecolors=INK, lw=0.6, label=label)


def _mark_end(axes: Axes, best: curves.Curve) -> None:
    axes.annotate(
        speedup_text(best.speedup[-1], (best.low[-1], best.high[-1])),
        (best.x[-1], best.speedup[-1]),
        xytext=(0, 8),
        textcoords="offset points",
        ha="right",
        color=BEST,
        fontweight="bold",
        path_effects=halo(),
        zorder=6,
    )


def _mark_eager(axes: Axes) -> None:
    axes.axhline(1.0, color=INK, lw=1, ls=(0, (5, 3)), zorder=1)
    axes.annotate(
        "eager = 1.0",
        (1.0, 1.0),
        xycoords=axes.get_yaxis_transform(),
        xytext=(-2, 3),
        textcoords="offset points",
        ha="right",
        fontsize=9.5,
        path_effects=halo(),
        zorder=6,
    )


def _speedup_axis(axes: Axes, speedups: Sequence[float]) -> None:
    axes.set_ylabel("speedup over eager")
    log_if_wide(axes.yaxis, [1.0, *speedups], "x")
    low, high = axes.get_ylim()
    is_log = axes.get_yscale() == "log"
    axes.set_ylim(low if is_log else max(0.0, low), high * ((high / low) ** 0.08 if is_log else 1.08))


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _legend(figure: Figure, axes: Axes) -> None:
    """Below the axes: best, its interval, candidates, seed, then islands and marks."""
    handles, labels = axes.get_legend_handles_labels()
    order = {"best so far": 0, "95% interval": 1, "correct candidate": 2, "first (seed)": 3}
    order |= {"a migrant arrives": 8, "an island starts again": 9}
    pairs = sorted(zip(handles, labels, strict=True), key=lambda pair: (order.get(pair[1], 4), pair[1]))
    columns = 5 if len(labels) == 5 else 4
    place: Any = {"loc": "outside lower center", "ncols": columns, "columnspacing": 1.2, "handlelength": 1.4}
    figure.legend([handle for handle, _ in pairs], [label for _, label in pairs], **place)


def _has_correct(record: Record) -> bool:
    return any(each.evaluation.is_correct for each in record.history)


def _nothing(record: Record) -> str:
    return "no correct candidate yet" if record.history else "nothing evaluated yet"
