"""The report of one run: figures and one self-contained page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from islands.candidate import Evaluated
from kb_evolve.report import series
from kb_evolve.report.captions import alternatives, captions
from kb_evolve.report.curves import total_usd
from kb_evolve.report.diff import source_text
from kb_evolve.report.figures import write_figures
from kb_evolve.report.operators import device_seconds
from kb_evolve.report.pictures import picture
from kb_evolve.report.record import Record
from kb_evolve.report.tables import lineage, tables, usd_text
from kb_evolve.report.text import ms_text, one_line, plain_title, seconds_text, speedup_text, visible
from kb_evolve.report.timeline import wall_seconds
from kb_evolve.report.warnings import warnings_of

HERE = Path(__file__).parent


def write_report(record: Record, out_dir: str | Path, controls: Sequence[Record] = ()) -> dict[str, Path]:
    """Writes the figures (PNG and SVG, light and dark) and index.html to `out_dir`: {file name: path}, the page first.

    `controls` are other runs of the same problem to set this one against (operators.is_comparable). The page holds
    everything it shows, loads nothing and runs no script. Every text that a candidate, a model or a problem wrote is
    escaped, made visible and capped.
    """
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    run = record.run
    title = f"{plain_title(run.problem_id)} · {run.backend} on {_device_name(record)} · {run.precision}"
    figures, blank = write_figures(title, record, out_dir)
    page = out_dir / "index.html"
    page.write_text(render("page.html", page_context(record, figures, controls, blank)), encoding="utf-8")
    return {"index.html": page, **figures}


def render(template: str, context: Mapping[str, Any]) -> str:
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
    return environment.get_template(template).render(css=css, **context)


def page_context(
    record: Record, figures: Mapping[str, Path], controls: Sequence[Record] = (), blank: Mapping[str, str] = {}
) -> dict[str, Any]:
    """Everything that the page's template names, as plain strings; `blank` says which figures are empty, and why."""
    run, history = record.run, record.history
    winner = series.best(history)
    stages = {stage.name: stage.count for stage in series.funnel(history, record.attempts)}
    notes, instead = captions(record), alternatives(record)
    return {
        "run": {"name": one_line(run.name, 80), "problem": plain_title(run.problem_id)},
        "headline": _headline(winner, history) if winner else None,
        "no_best": _no_best(history),
        "tiles": _tiles(record, winner, stages),
        "warnings": warnings_of(record),
        "pictures": {name: picture(figures, name, instead[name], notes[name], blank.get(name, "")) for name in notes},
        **lineage(history),
        "source": source_text(winner.candidate.source) if winner else "",
        "source_lines": winner.candidate.source.count("\n") + 1 if winner else 0,
        "source_sha256": winner.candidate.source_sha256 if winner else "",
        "problem_source": source_text(run.problem_source),
        **tables(record, controls),
        "environment": _environment(record, winner),
        "config": visible(json.dumps({"budget": run.budget, "config": run.config}, indent=2, default=str), 40_000),
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


def _tiles(record: Record, winner: Evaluated | None, stages: Mapping[str, int]) -> list[tuple[str, str]]:
    usd = total_usd(record)
    return [
        ("Device", _device_name(record)),
        ("Kernel time", ms_text(winner.evaluation.kernel_ms if winner else None)),
        ("Reference time", ms_text(winner.evaluation.reference_ms if winner else None)),
        ("Programs", f"{series.distinct_programs(record.history):,}"),
        ("Correct", f"{stages['correct']:,}"),
        ("Running time", seconds_text(wall_seconds(record))),
        ("Device time", seconds_text(device_seconds(record))),
        *([("Dollars", usd_text(usd))] if usd else []),
    ]


def _environment(record: Record, winner: Evaluated | None) -> list[tuple[str, str]]:
    run, history = record.run, record.history
    last = winner.evaluation if winner else history[-1].evaluation if history else None
    facts = [
        ("Run", f"{run.name} ({run.id})"),
        ("Started", run.started_at),
        ("Problem", run.problem_id),
        ("Problem sha256", run.problem_sha256),
        ("Backend, device, precision", f"{run.backend}, {run.device}, {run.precision}"),
        ("Device name", _device_name(record)),
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


def _device_name(record: Record) -> str:
    names = [each.evaluation.device_name for each in record.history if each.evaluation.device_name]
    return one_line(names[-1] if names else record.run.device, 60)


def _baseline(name: str) -> str:
    return "eager PyTorch" if name == "eager" else one_line(name, 60)
