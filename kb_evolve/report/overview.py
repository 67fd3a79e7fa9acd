"""The report of several runs: one page with fast_p, geometric means and a row for each problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kb_evolve.report import suite
from kb_evolve.report.build import render
from kb_evolve.report.pictures import picture
from kb_evolve.report.style import INK, OKABE_ITO, blank_reason, canvas, empty, save, styled
from kb_evolve.report.text import ms_text, one_line, speedup_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 400
"""Most problems in the table: KernelBench has 270."""
WARNINGS = 40
LAST_COLUMNS = ("Kernel", "Told", "Correct", "Run", "Setting")
CAPTION = (
    "The share of all problems for which a correct kernel is at least p times as fast as the baseline. Thin lines: the "
    "same with the lower and the upper ends of every 95% interval. Problems without a correct kernel, and those whose "
    "baseline is not known, count as slower."
)


def write_overview(
    found: Sequence[suite.Entry], warnings: Mapping[str, Sequence[str]], out_dir: str | Path
) -> dict[str, Path]:
    """Writes fast_p (PNG and SVG, light and dark) and index.html: {file name: path}, the page first.

    `found` holds one entry for each problem and setting (suite.best_entries), `warnings` what to know of each run.
    """
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    with styled():
        figure = fast_p(found)
        figures = {path.name: path for path in save(figure, out_dir / "fast_p")}
    page = out_dir / "index.html"
    context = overview_context(found, warnings, figures, blank_reason(figure))
    page.write_text(render("overview.html", context), encoding="utf-8")
    return {"index.html": page, **figures}


def fast_p(found: Sequence[suite.Entry]) -> Figure:
    """The share of the problems with a correct kernel at least p times as fast, for each setting and baseline."""
    curves = [curve for curve in suite.fast_p(found) if curve.speedups]
    settings = {curve.setting for curve in curves}
    title = one_line(next(iter(settings)), 90) if len(settings) == 1 else f"{len(settings)} settings"
    figure, axes = canvas(title, "fast_p: share of problems at least p times as fast")
    if not curves:
        return empty(figure, axes, "no problem has a correct kernel yet")
    ends = [speedup for curve in curves for speedup in (*curve.lows, *curve.highs)]
    low, high = min(0.5, 0.9 * min(ends)), 1.1 * max(2.0, *ends)
    for rank, curve in enumerate(curves[: len(OKABE_ITO)]):
        name = f"over {curve.baseline}" + ("" if len(settings) == 1 else f": {curve.setting}")
        colour = OKABE_ITO[rank]
        xs, shares = stairs(curve.speedups, curve.problems, low, high)
        axes.step(xs, shares, where="pre", color=colour, lw=2.2, label=one_line(name, 60))
        for bounds in (curve.lows, curve.highs):
            axes.step(*stairs(bounds, curve.problems, low, high), where="pre", color=colour, lw=0.8, alpha=0.6)
    axes.axvline(1.0, color=INK, lw=1, ls=(0, (5, 3)), zorder=1)
    _speedups_across(axes, low, high)
    axes.set(ylim=(0, 1.02), ylabel="share of problems")
    place: Any = {"loc": "outside lower center", "ncols": 2 if len(curves) > 1 else 1}
    figure.legend(*axes.get_legend_handles_labels(), **place)
    return figure


def stairs(speedups: Sequence[float], problems: int, low: float, high: float) -> tuple[list[float], list[float]]:
    """Abscissae and shares between `low` and `high`: up to each speedup, as many problems are at least as fast."""
    xs = [low, *(speedup for speedup in speedups if low < speedup < high), high]
    return xs, [suite.share_above(speedups, x, problems) for x in xs]


def overview_context(
    found: Sequence[suite.Entry], warnings: Mapping[str, Sequence[str]], figures: Mapping[str, Path], blank: str = ""
) -> dict[str, Any]:
    """Everything that the page's template names, as plain strings; `blank` says why there is no curve, if so."""
    curves, means = suite.fast_p(found), suite.means(found)
    columns = LAST_COLUMNS if len({curve.setting for curve in curves}) > 1 else LAST_COLUMNS[:-1]
    solved = sum(entry.kernel_ms is not None for entry in found)
    baselines = list(dict.fromkeys(curve.baseline for curve in curves))
    alt = "Share of problems by least speedup; the table below gives its values."
    said = [
        f"{one_line(run, 60)}: {one_line(warning, 400)}" for run, several in warnings.items() for warning in several
    ]
    return {
        "title": _problems(len(found)),
        "is_solved": bool(means),
        "hero": speedup_text(means[0].mean) if means else "No correct kernel yet",
        "hero_note": _mean_note(means[0]) if means else f"{_problems(len(found))} searched",
        "lead": f"Problems with a correct kernel: {solved} of {len(found)}.",
        "warnings": said[:WARNINGS] + ([f"{len(said) - WARNINGS} more."] if len(said) > WARNINGS else []),
        "pictures": {"fast_p": picture(figures, "fast_p", alt, CAPTION, blank)},
        "fast_columns": ("Setting", "Baseline", "Problems", *(_step_name(p) for p in suite.STEPS), "Baseline unknown"),
        "fast_rows": [_fast_row(curve) for curve in curves],
        "mean_columns": (
            "Setting",
            "Baseline",
            "Problems",
            "Geometric mean",
            "95%, these problems",
            "95%, such problems",
        ),
        "mean_rows": [_mean_row(mean) for mean in means],
        "problem_columns": ("Problem", *(f"Over {one_line(name, 40)}" for name in baselines), *columns),
        "problem_rows": [_problem_row(entry, baselines)[: 1 + len(baselines) + len(columns)] for entry in found[:ROWS]],
        "hidden": max(0, len(found) - ROWS),
    }


def _problems(count: int) -> str:
    return f"{count} problem{'' if count == 1 else 's'}"


def _step_name(p: float) -> str:
    return "correct" if p == 0 else f"≥\u00a0{p:g}x"


def _fast_row(curve: suite.FastP) -> tuple[str, ...]:
    shares = (f"{curve.at(p):.0%}" for p in suite.STEPS)
    missing = str(curve.missing) if curve.missing else "–"
    return (one_line(curve.setting, 80), one_line(curve.baseline, 40), str(curve.problems), *shares, missing)


def _mean_row(mean: suite.Mean) -> tuple[str, ...]:
    return (
        one_line(mean.setting, 80),
        one_line(mean.baseline, 40),
        str(mean.problems),
        speedup_text(mean.mean),
        _range(mean.measured),
        _range(mean.resampled) if mean.resampled else "fewer than 5 problems",
    )


def _mean_note(mean: suite.Mean) -> str:
    return (
        f"geometric mean over {one_line(mean.baseline, 40)}, 95% interval {_range(mean.measured)} from measurement "
        f"alone, {_problems(mean.problems)} with a correct kernel"
    )


def _problem_row(entry: suite.Entry, baselines: Sequence[str]) -> tuple[str, ...]:
    figures = (entry.speedups.get(baseline) for baseline in baselines)
    return (
        one_line(entry.problem, 80),
        *(speedup_text(figure[0], figure[1:]) if figure else "–" for figure in figures),
        ms_text(entry.kernel_ms),
        f"{entry.evaluations:,}",
        f"{entry.correct:,}",
        one_line(entry.run_name, 60),
        one_line(entry.setting, 80),
    )


def _range(bounds: tuple[float, float]) -> str:
    return f"[{', '.join(speedup_text(bound).removesuffix('x') for bound in bounds)}]"


def _speedups_across(axes: Any, low: float, high: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 200 * low else (1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.set_xlabel("p: speedup over the baseline")
