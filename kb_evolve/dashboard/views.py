"""What each page shows, as values that the templates name."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any

from fitness.evaluation import Evaluation, Verdict
from islands.browsing import Wish
from islands.candidate import Candidate, Evaluated
from islands.run import Run
from islands.store import Store, StoreError
from kb_evolve.dashboard import plots
from kb_evolve.dashboard.highlight import highlighted
from kb_evolve.dashboard.watch import Overview, Watch, Watches, standing_of
from kb_evolve.report.diff import unified
from kb_evolve.report.text import bytes_text, ms_text, number_text, seconds_text, speedup_text

PAGE = 50
"""Candidates on one page of the list."""
LATEST = 8
STEPS = 200
"""Of a lineage, the newest."""
RIGHT = (Verdict.CORRECT, Verdict.VERIFIED)
STAGES_TEXT = {"faster": "faster than the baseline", "ran": "ran to the end"}


class Missing(Exception):
    """What was asked for is not in the database; says what to do."""


def home(watches: Watches) -> dict[str, Any]:
    """Problems with their runs, newest first; of a run that cannot be read, or not yet, no more than its name."""
    problems: dict[str, dict[str, Any]] = {}
    for watch in watches.all():
        run = watch.run
        problem = problems.setdefault(run.problem_sha256, {"title": problem_title(run), "runs": []})
        unknown = {"run": run, "told": None, "is_unreadable": watch.is_unreadable}
        problem["runs"].append(run_card(watches.store, watch.known) if watch.known else unknown)
    return {"problems": list(problems.values()), "count": sum(len(one["runs"]) for one in problems.values())}


def run_card(store: Store, overview: Overview) -> dict[str, Any]:
    """A run in a few figures."""
    run = overview.run
    return {
        "run": run,
        "is_running": store.is_running(run.id),
        "told": len(overview.history),
        "correct": sum(overview.verdicts.get(verdict, 0) for verdict in RIGHT),
        "best": overview.best,
        "device": device_of(overview),
        "ago": ago(store.last_told_at(run.id)),
        "spark": plots.spark(f"Best so far of {run.name}", overview.corners, len(overview.history)),
    }


def run_page(store: Store, watch: Watch) -> dict[str, Any]:
    """One run, with what it is doing."""
    overview = watch.overview()
    run, told = overview.run, len(overview.history)
    curves = plots.island_curves(overview.islands)
    return {
        **run_card(store, overview),
        "title": problem_title(run),
        "warnings": overview.warnings,
        "tiles": _tiles(overview),
        "plot": plots.progress(
            f"{progress_sentence(overview)} {len(overview.points)} correct candidates.",
            overview.points,
            [*curves, plots.Curve("best so far", overview.corners, "best")],
            told,
        ),
        "curves": curves,
        "sentence": progress_sentence(overview),
        "islands": [_island(overview, island) for island in sorted(overview.members)],
        "stages": _stages(overview),
        "operators": overview.operators,
        "reasons": overview.reasons,
        "latest": store.browse(run.id, Wish(), 0, LATEST),
        "budget": json.dumps(run.budget, default=str),
        "config": json.dumps(run.config, indent=2, default=str),
        "problem_source": highlighted(run.problem_source),
    }


def candidates_page(store: Store, watch: Watch, wish: Wish, page: int) -> dict[str, Any]:
    """One page of a run's candidates; it does not wait for the whole run to be read."""
    run, known = watch.run, watch.known
    skip = PAGE * (page - 1)
    found = store.browse(run.id, wish, skip, PAGE + 1)
    rows = [(known.find(each.candidate.id) if known else None) or each for each in found[:PAGE]]
    return {
        "run": run,
        "wish": wish,
        "rows": rows,
        "first": skip + 1,
        "last": skip + len(rows),
        "page": page,
        "is_more": len(found) > PAGE,
        "total": store.state(run.id).told if wish.is_all else None,
        "verdicts": [verdict.value for verdict in Verdict],
        "mutators": sorted({wish.mutator, *_listed(known, rows, "mutator")} - {""}),
        "islands": sorted({wish.island, *_listed(known, rows, "island")} - {None}),
    }


def _listed(known: Overview | None, rows: Sequence[Evaluated], name: str) -> set[Any]:
    """Values that a field of the run's candidates has; of the ones at hand until the run is read."""
    if known is None:
        return {getattr(each.candidate, name) for each in rows}
    return set(known.members) if name == "island" else {tally.name for tally in known.operators}


def candidate_page(watches: Watches, id_or_prefix: str) -> dict[str, Any]:
    """One candidate: what it is, what was found, where it came from."""
    store = watches.store
    candidate = find_candidate(store, id_or_prefix)
    run_id = candidate.id.rpartition("-")[0]
    watch = watches.find(run_id)
    if watch is None:
        raise Missing(f"The run {run_id} of candidate {candidate.id} is not in this database.")
    overview = watch.overview()
    told, now = store.evaluated(candidate.id), overview.find(candidate.id)
    steps = overview.lineage(candidate.id)
    parents = [parent for one in candidate.parent_ids if (parent := store.find_candidate(one)) is not None]
    return {
        "run": watch.run,
        "candidate": candidate,
        "told": told.evaluation if told else None,
        "now": now.evaluation if now else None,
        "standing": standing_of(now) if now else "",
        "facts": evaluation_facts(now.evaluation) if now else [],
        "features": _features(told.evaluation) if told else [],
        "details": json.dumps(candidate.details, indent=2, default=str) if candidate.details else "",
        "lines": highlighted(candidate.source),
        "diffs": [(parent, unified(parent.source, candidate.source)) for parent in parents],
        "turns": store.turns(run_id, candidate.number),
        "lineage": steps[-STEPS:],
        "earlier": max(len(steps) - STEPS, 0),
        "children": store.children_of(candidate.id),
    }


def compare_page(watches: Watches, one: str, other: str) -> dict[str, Any]:
    """Two candidates side by side."""
    store = watches.store
    candidates = [find_candidate(store, each) for each in (one, other)]
    found = [_now(watches, candidate) for candidate in candidates]
    facts = [dict(evaluation_facts(each)) if each else {} for each in found]
    names = list(dict.fromkeys([*facts[0], *facts[1]]))
    return {
        "candidates": candidates,
        "evaluations": found,
        "rows": [(name, *(each.get(name, "–") for each in facts)) for name in names],
        "diff": unified(candidates[0].source, candidates[1].source),
        "is_same_problem": len({_problem(watches, candidate) for candidate in candidates}) == 1,
    }


def compare_runs_page(watches: Watches, one: str, other: str) -> dict[str, Any]:
    """Two runs side by side, their curves in one plot."""
    overviews = []
    for name in (one, other):
        watch = watches.find(name)
        if watch is None:
            raise Missing(no_run(watches.store, name))
        overviews.append(watch.overview())
    facts = [dict(_run_facts(overview)) for overview in overviews]
    told = max(len(overview.history) for overview in overviews)
    curves = [
        plots.Curve(overview.run.name, overview.corners, style)
        for overview, style in zip(overviews, ("c0", "c1"), strict=True)
    ]
    label = " ".join(f"{overview.run.name}: {progress_sentence(overview)}" for overview in overviews)
    return {
        "runs": [overview.run for overview in overviews],
        "rows": [(name, facts[0][name], facts[1][name]) for name in facts[0]],
        "curves": curves,
        "plot": plots.progress(label, [], curves, told),
        "is_same_problem": len({overview.run.problem_sha256 for overview in overviews}) == 1,
    }


def find_candidate(store: Store, id_or_prefix: str) -> Candidate:
    """The candidate; Missing when there is none, or several begin so."""
    try:
        candidate = store.find_candidate(id_or_prefix) if id_or_prefix else None
    except StoreError as error:
        if "several candidates" not in str(error):
            raise
        raise Missing(str(error)) from error
    if candidate is None:
        raise Missing(f"No candidate's id begins with {id_or_prefix!r}. A run's page lists its candidates.")
    return candidate


def no_run(store: Store, name: str) -> str:
    """What to say when a run is not there."""
    names = ", ".join(run.name for run in store.runs()[:20]) or "none yet"
    return f"This database holds no run {name!r}; its runs: {names}."


def progress_sentence(overview: Overview) -> str:
    """The plot in words."""
    if overview.best is None or not overview.points:
        return f"No correct candidate among {len(overview.history):,} evaluated."
    first, best = overview.points[0], overview.best.evaluation
    return (
        f"From {speedup_text(first.speedup)} to {speedup_text(best.speedup)} in {len(overview.history):,} evaluations."
    )


def problem_title(run: Run) -> str:
    """The problem's id; of a path, the file's name."""
    name = run.problem_id.removesuffix(".py")
    return name.rsplit("/", 1)[-1] if name != run.problem_id else name


def device_of(overview: Overview) -> str:
    """The name of the device that measured last, else the run's own word for it."""
    names = (each.evaluation.device_name for each in reversed(overview.history))
    return next((name for name in names if name), overview.run.device)


def ago(moment: str | None) -> str:
    """How long ago that was."""
    if moment is None:
        return "nothing evaluated yet"
    seconds = (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(moment)).total_seconds()
    if seconds >= 48 * 3600:
        return f"{seconds / 86400:.0f} days ago"
    return f"{seconds_text(max(seconds, 0))} ago"


def evaluation_facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """What a judge found, in words and units; what does not apply is left out."""
    interval = evaluation.kernel_ms_ci
    facts = [
        ("Verdict", evaluation.verdict.value.replace("_", " ")),
        ("Speedup", speedup_text(evaluation.speedup, evaluation.speedup_ci)),
        ("Kernel time", ms_text(evaluation.kernel_ms)),
        ("Its 95% interval", f"{ms_text(interval[0])} to {ms_text(interval[1])}" if interval else "–"),
        ("Reference time", f"{ms_text(evaluation.reference_ms)} ({evaluation.baseline})"),
        ("Peak memory", bytes_text(evaluation.peak_mem_bytes)),
        ("Error, relative to the reference's", number_text(evaluation.error_ratio)),
        ("Largest absolute error", number_text(evaluation.max_abs_err)),
        ("KernelBench's rule", {True: "passes", False: "fails", None: "–"}[evaluation.kernelbench_correct]),
        ("Build", seconds_text(evaluation.compile_s)),
        ("Judging", seconds_text(evaluation.evaluate_s)),
        ("Rounds, checked outputs", f"{evaluation.rounds}, {evaluation.draws}"),
        ("Empty measurement", ms_text(evaluation.overhead_ms)),
        ("Device", evaluation.device_name or "–"),
        ("Sandbox, tier", f"{evaluation.sandbox or '–'}, {evaluation.tier or '–'}"),
    ]
    return [(name, value) for name, value in facts if not value.startswith("–")]


def _tiles(overview: Overview) -> list[tuple[str, str]]:
    best = overview.best.evaluation if overview.best else None
    told = len(overview.history)
    rate = f"{told / overview.wall_s * 3600:,.0f} / h" if overview.wall_s > 60 else "–"
    return [
        ("Evaluations", f"{told:,}"),
        ("Kernel time", ms_text(best.kernel_ms if best else None)),
        ("Baseline time", ms_text(best.reference_ms if best else None)),
        ("Wall time", seconds_text(overview.wall_s)),
        ("Pace", rate),
        ("Models' cost", f"${overview.cost_usd:,.2f}" if overview.cost_usd else "–"),
    ]


def _island(overview: Overview, island: int) -> dict[str, Any]:
    corners = overview.islands.get(island, ())
    return {
        "island": island,
        "style": f"c{island % plots.CURVES}",
        "told": overview.members[island],
        "best": corners[-1] if corners else None,
    }


def _stages(overview: Overview) -> list[dict[str, Any]]:
    whole = max(overview.stages[0].count, 1)
    return [
        {
            "name": STAGES_TEXT.get(stage.name, stage.name),
            "count": stage.count,
            "share": round(100 * stage.count / whole, 1),
        }
        for stage in overview.stages
    ]


def _features(evaluation: Evaluation) -> list[tuple[str, str]]:
    return [(name, json.dumps(value, default=str)) for name, value in sorted(evaluation.features.items())]


def _now(watches: Watches, candidate: Candidate) -> Evaluation | None:
    """The candidate's evaluation with the estimate that counts now."""
    watch = watches.find(candidate.id.rpartition("-")[0])
    found: Evaluated | None = watch.overview().find(candidate.id) if watch else None
    return found.evaluation if found else None


def _problem(watches: Watches, candidate: Candidate) -> str:
    watch = watches.find(candidate.id.rpartition("-")[0])
    return watch.run.problem_sha256 if watch else candidate.id


def _run_facts(overview: Overview) -> Sequence[tuple[str, str]]:
    best = overview.best.evaluation if overview.best else None
    run = overview.run
    return [
        ("Problem", problem_title(run)),
        ("Backend, device, precision", f"{run.backend}, {run.device}, {run.precision}"),
        ("Device", device_of(overview)),
        ("Best speedup", speedup_text(best.speedup, best.speedup_ci) if best else "–"),
        ("Best kernel time", ms_text(best.kernel_ms if best else None)),
        ("Evaluations", f"{len(overview.history):,}"),
        ("Asked", f"{sum(overview.outcomes.values()):,}"),
        ("Correct", f"{overview.verdicts.get('correct', 0):,}"),
        ("Islands", f"{len(overview.members)}"),
        ("Wall time", seconds_text(overview.wall_s)),
        ("Models' cost", f"${overview.cost_usd:,.2f}" if overview.cost_usd else "–"),
        ("Seed", str(run.seed)),
        ("Started", run.started_at),
    ]
