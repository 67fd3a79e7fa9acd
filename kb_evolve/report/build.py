"""The report: figures and one self-contained page."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from islands.candidate import Evaluated
from islands.run import Attempt, Event, Run
from kb_evolve.budget import earlier_seconds
from kb_evolve.report import series
from kb_evolve.report.diff import DiffLine, source_text, unified
from kb_evolve.report.figures import write_figures
from kb_evolve.report.text import (
    bytes_text,
    ms_text,
    number_text,
    one_line,
    seconds_text,
    speedup_text,
    visible,
)
from kb_evolve.report.warnings import warnings

HERE = Path(__file__).parent


def write_report(
    run: Run,
    history: series.History,
    attempts: Sequence[Attempt],
    events: Sequence[Event],
    out_dir: str | Path,
) -> dict[str, Path]:
    """Writes the figures (PNG and SVG) and index.html to `out_dir`: {file name: path}, `index.html` first.

    The page holds everything it shows, loads nothing and runs no script. Every text that a candidate, a
    model or a problem wrote is escaped, made visible and capped.
    """
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    title = f"{_problem_title(run)} · {run.backend} on {_device_name(run, history)} · {run.precision}"
    figures = write_figures(title, history, attempts, out_dir)
    page = out_dir / "index.html"
    text = render(page_context(run, history, attempts, events, figures))
    page.write_text(text, encoding="utf-8")
    return {"index.html": page, **figures}


def render(context: Mapping[str, Any]) -> str:
    """The page's HTML; every value of `context` is escaped."""
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    css = markupsafe.Markup((HERE / "page.css").read_text(encoding="utf-8"))
    return environment.get_template("page.html").render(css=css, **context)


def page_context(
    run: Run,
    history: series.History,
    attempts: Sequence[Attempt],
    events: Sequence[Event],
    figures: Mapping[str, Path],
) -> dict[str, Any]:
    """Everything the page's template names, as plain strings."""
    winner = series.best(history)
    stages = {stage.name: stage.count for stage in series.funnel(history, attempts)}
    return {
        "run": {"name": one_line(run.name, 80), "problem": _problem_title(run)},
        "headline": _headline(winner, history) if winner else None,
        "no_best": _no_best(history),
        "tiles": _tiles(run, winner, history, stages, earlier_seconds(events, attempts)),
        "warnings": warnings(run.config, history),
        "images": {name: _inline(figures[f"{name}.svg"]) for name in ("progress", "pareto", "funnel")},
        "alt": _alternatives(winner, stages),
        "caption": _captions(events),
        **_lineage(history),
        "source": source_text(winner.candidate.source) if winner else "",
        "source_lines": winner.candidate.source.count("\n") + 1 if winner else 0,
        "source_sha256": winner.candidate.source_sha256 if winner else "",
        "problem_source": source_text(run.problem_source),
        **_tables(history, attempts),
        "environment": _environment(run, winner, history),
        "config": visible(json.dumps({"budget": run.budget, "config": run.config}, indent=2, default=str), 40_000),
    }


PARETO_COLUMNS = ("Candidate", "Speedup", "Kernel", "Peak memory", "Error ratio", "Max abs error", "Operator")
OPERATOR_COLUMNS = (
    *("Operator", "Asks", "Proposed", "Correct", "Improved"),
    *("Mean gain", "Sum of ln gain", "Judge time", "Cost"),
)


def _captions(events: Sequence[Event]) -> dict[str, str]:
    """What stands below each figure."""
    duels, bouts = (sum(event.kind == kind for event in events) for kind in ("duel", "bout"))
    luck = (
        f"What beat the best was measured again, and only the second figure counts ({duels} times); kernels in doubt "
        f"were measured afresh ({bouts} times)."
        if duels or bouts
        else "The best of many noisy measurements tends to be a lucky one: measure it afresh to quote it."
    )
    return {
        "progress": "Every dot is a correct candidate, at the speedup found in rounds that alternate it with "
        f"the baseline. The blue line is the best so far, its band that candidate's 95% interval. {luck}",
        "pareto": "Each correct candidate by kernel time and peak memory; the colour is its error against a "
        "double-precision oracle, relative to the reference's own error. Lower is better in all three; "
        "ringed kernels form the Pareto front.",
        "funnel": "How many asks reached each stage; in brackets, the share of the stage before. Faster "
        "means that the whole 95% interval of the speedup lies above 1.",
    }


def _headline(winner: Evaluated, history: series.History) -> dict[str, str]:
    evaluation = winner.evaluation
    assert evaluation.speedup_ci is not None
    first = series.correct_points(history)[0]
    sentence = f"{ms_text(evaluation.kernel_ms)} against {ms_text(evaluation.reference_ms)}"
    if first.candidate_id != winner.candidate.id:
        sentence += f"; the first correct candidate stood at {speedup_text(first.speedup)}"
    low, high = (speedup_text(bound).removesuffix("x") for bound in evaluation.speedup_ci)
    return {
        "speedup": speedup_text(evaluation.speedup),
        "interval": f"[{low}, {high}]",
        "baseline": _baseline(evaluation.baseline),
        "sentence": sentence + ".",
    }


def _no_best(history: series.History) -> str:
    if not history:
        return "Nothing has been evaluated yet."
    counts = ", ".join(f"{count} {verdict.value}" for verdict, count in series.verdict_counts(history).items())
    return f"{len(history)} evaluated: {counts}."


def _tiles(
    run: Run, winner: Evaluated | None, history: series.History, stages: Mapping[str, int], wall_s: float
) -> list[tuple[str, str]]:
    return [
        ("Device", _device_name(run, history)),
        ("Kernel time", ms_text(winner.evaluation.kernel_ms if winner else None)),
        ("Reference time", ms_text(winner.evaluation.reference_ms if winner else None)),
        ("Programs", f"{series.distinct_programs(history):,}"),
        ("Correct", f"{stages['correct']:,}"),
        ("Wall time", seconds_text(wall_s)),
    ]


def _inline(path: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()


def _alternatives(winner: Evaluated | None, stages: Mapping[str, int]) -> dict[str, str]:
    reached = speedup_text(winner.evaluation.speedup) if winner else "no correct candidate"
    return {
        "progress": f"Best speedup by evaluation number; it ends at {reached}.",
        "pareto": "Scatter of kernel time against peak memory; the table below lists the front.",
        "funnel": "Candidates by stage: " + ", ".join(f"{name} {count}" for name, count in stages.items()) + ".",
    }


def _lineage(history: series.History) -> dict[str, Any]:
    steps = series.lineage(history)
    open_at = max(range(len(steps)), key=lambda index: steps[index].gain or 0.0) if steps else -1
    shown = [_step(step, index == open_at) for index, step in enumerate(steps)]
    if not steps:
        return {"steps": [], "lineage_sentence": ""}
    first, last = steps[0].evaluated, steps[-1].evaluated
    sentence = f"{len(steps) - 1} steps from generation {first.candidate.generation}; the largest one is opened."
    if first.evaluation.speedup and last.evaluation.speedup and len(steps) > 1:
        factor = speedup_text(last.evaluation.speedup / first.evaluation.speedup)
        sentence = f"{len(steps) - 1} steps made the first program {factor} as fast; the largest one is opened."
    return {
        "steps": shown,
        "lineage_sentence": sentence if len(steps) > 1 else "The first program is the best one.",
    }


def _step(step: series.Step, is_open: bool) -> dict[str, Any]:
    candidate = step.evaluated.candidate
    diff = unified(step.parent.candidate.source, candidate.source) if step.parent else []
    others = len(candidate.parent_ids) - 1
    where = f"candidate {candidate.number}, generation {candidate.generation}, island {candidate.island}"
    also = f", crossed with {others} other{'s' if others > 1 else ''}" if others > 0 else ""
    return {
        "mutator": one_line(candidate.mutator, 40),
        **_gain(step),
        "rationale": one_line(candidate.rationale, 600)
        or ("" if step.parent else "The program that the search began with."),
        "speedup": _reached(step.evaluated),
        "where": where + also,
        "diff": diff,
        "diff_summary": _diff_summary(diff),
        "open": is_open and bool(diff),
    }


def _gain(step: series.Step) -> dict[str, Any]:
    """The step's factor as text, and whether it is a clear step up or down."""
    if step.gain is None:
        return {"gain": "" if step.parent else "start", "up": False, "down": False}
    text = f"×{step.gain:.2f}" if step.is_clear else f"×{step.gain:.2f}, within noise"
    return {"gain": text, "up": step.is_clear and step.gain > 1, "down": step.is_clear and step.gain < 1}


def _reached(each: Evaluated) -> str:
    """Speedup and time of a correct candidate, verdict and reason of another."""
    evaluation = each.evaluation
    if not evaluation.is_correct:
        return f"{evaluation.verdict.value}: {one_line(evaluation.reason, 160)}"
    return f"{speedup_text(evaluation.speedup, evaluation.speedup_ci)} · {ms_text(evaluation.kernel_ms)}"


def _diff_summary(diff: Sequence[DiffLine]) -> str:
    added, removed = (sum(line.kind == kind for line in diff) for kind in ("added", "removed"))
    return f"What changed: {added} line{'' if added == 1 else 's'} added, {removed} removed"


def _tables(history: series.History, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """Columns and rows of the four tables."""
    total = max(1, len(history))
    return {
        "pareto_columns": PARETO_COLUMNS,
        "pareto_rows": [_pareto_row(each) for each in series.pareto_front(history)[:50]],
        "verdict_rows": [
            (verdict.value, f"{count:,}", f"{count / total:.0%}")
            for verdict, count in series.verdict_counts(history).items()
        ],
        "reason_rows": [
            (one_line(reason.outcome, 40), f"{reason.count:,}", reason.example or "no reason given")
            for reason in series.failure_reasons(history, attempts)
        ],
        "operator_caption": "Improved: the candidate's 95% interval lies above that of its fastest parent. "
        "Mean gain: geometric mean of those improvements; sum of ln gain: what they add up to.",
        "operator_columns": OPERATOR_COLUMNS,
        "operator_rows": [_operator_row(row) for row in series.operator_table(history, attempts)],
    }


def _pareto_row(each: Evaluated) -> tuple[str, ...]:
    evaluation = each.evaluation
    return (
        str(each.candidate.number),
        speedup_text(evaluation.speedup, evaluation.speedup_ci),
        ms_text(evaluation.kernel_ms),
        bytes_text(evaluation.peak_mem_bytes),
        number_text(evaluation.error_ratio),
        number_text(evaluation.max_abs_err),
        one_line(each.candidate.mutator, 40),
    )


def _operator_row(row: series.Operator) -> tuple[str, ...]:
    return (
        one_line(row.name, 40),
        f"{row.asks:,}",
        f"{row.proposed:,}",
        f"{row.correct:,}",
        f"{row.improved:,}",
        f"×{row.mean_gain:.2f}" if row.improved else "–",
        f"{row.log_gain:.2f}" if row.improved else "–",
        seconds_text(row.judge_s),
        f"${row.cost_usd:.2f}" if row.cost_usd else "–",
    )


def _environment(run: Run, winner: Evaluated | None, history: series.History) -> list[tuple[str, str]]:
    last = winner.evaluation if winner else history[-1].evaluation if history else None
    facts = [
        ("Run", f"{run.name} ({run.id})"),
        ("Started", run.started_at),
        ("Problem", run.problem_id),
        ("Problem sha256", run.problem_sha256),
        ("Backend, device, precision", f"{run.backend}, {run.device}, {run.precision}"),
        ("Device name", _device_name(run, history)),
        ("Random seed", run.seed),
        ("Source of kb_evolve", run.git_commit or "not a git checkout"),
    ]
    if last is not None:
        facts += [
            ("Baseline", _baseline(last.baseline)),
            ("Judge protocol, tier", f"{last.protocol}, {last.tier or 'not given'}"),
            ("Judge sha256", last.judge_sha256 or "not given"),
            ("Sandbox level", last.sandbox or "not given"),
            ("Rounds, checked outputs", f"{last.rounds}, {last.draws}"),
            ("Cost of an empty measurement", ms_text(last.overhead_ms)),
        ]
    return [(name, one_line(value, 160)) for name, value in facts]


def _problem_title(run: Run) -> str:
    """The problem's id; of a path, the file's name."""
    name = run.problem_id.removesuffix(".py")
    return one_line(name.rsplit("/", 1)[-1] if name != run.problem_id else name, 120)


def _device_name(run: Run, history: series.History) -> str:
    names = [each.evaluation.device_name for each in history if each.evaluation.device_name]
    return one_line(names[-1] if names else run.device, 60)


def _baseline(name: str) -> str:
    return "eager PyTorch" if name == "eager" else one_line(name, 60)
