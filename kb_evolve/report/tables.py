"""The tables and the line of descent of a run's page, as plain strings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from islands.candidate import Evaluated
from kb_evolve.report import operators, series
from kb_evolve.report.diff import DiffLine, unified
from kb_evolve.report.record import Record
from kb_evolve.report.text import bytes_text, ms_text, number_text, one_line, seconds_text, speedup_text

PARETO_COLUMNS = ("Candidate", "Speedup", "Kernel", "Peak memory", "Error ratio", "Max abs error", "Operator")
ARM_COLUMNS = (
    *("Operator and model", "Asks", "Valid", "Correct", "New elites", "Improved", "Mean gain", "Sum of ln gain"),
    *("Dollars", "Device time", "ln gain per device hour", "ln gain per dollar"),
)
RUN_COLUMNS = (
    *("Run", "Chooser", "Asks", "Measured", "Correct", "Elites", "Dollars", "Device time"),
    *("Speedup", "Speedup at equal evaluations"),
)
PARETO_ROWS, STEPS_SHOWN, ARMS_SHOWN = 50, 40, 60


def tables(record: Record, controls: Sequence[Record]) -> dict[str, Any]:
    """Columns and rows of the page's tables."""
    history = record.history
    total = max(1, len(history))
    arms = operators.arm_table(record)
    models = operators.by_model(arms)
    return {
        "pareto_columns": PARETO_COLUMNS,
        "pareto_rows": [_pareto_row(each) for each in series.pareto_front(history)[:PARETO_ROWS]],
        "verdict_rows": [
            (verdict.value, f"{count:,}", f"{count / total:.0%}")
            for verdict, count in series.verdict_counts(history).items()
        ],
        "reason_rows": [
            (one_line(reason.outcome, 40), f"{reason.count:,}", reason.example or "no reason given")
            for reason in series.failure_reasons(history, record.attempts)
        ],
        "route_rows": _route_rows(series.build_routes(history)),
        "arm_columns": ARM_COLUMNS,
        "arm_rows": [_arm_row(arm) for arm in arms[:ARMS_SHOWN]],
        "model_columns": ("Model", *ARM_COLUMNS[1:]),
        "model_rows": [_arm_row(arm) for arm in models] if any(arm.model for arm in models) else [],
        "run_columns": RUN_COLUMNS,
        "run_rows": [_run_row(total) for total in operators.totals([record, *controls])] if controls else [],
    }


def lineage(history: series.History) -> dict[str, Any]:
    """The steps from the seed to the elite, and a sentence on them; of a long line, the largest steps."""
    steps = series.lineage(history)
    if not steps:
        return {"steps": [], "lineage_sentence": ""}
    kept = sorted(range(len(steps)), key=lambda index: (0 < index < len(steps) - 1, -_size(steps[index])))[:STEPS_SHOWN]
    open_at = max(range(len(steps)), key=lambda index: steps[index].gain or 0.0)
    shown = [_step(steps[index], index == open_at) for index in sorted(kept)]
    first, last = steps[0].evaluated, steps[-1].evaluated
    if len(steps) == 1:
        return {"steps": shown, "lineage_sentence": "The first program is the best one."}
    count = "1 step" if len(steps) == 2 else f"{len(steps) - 1} steps"
    sentence = f"{count} from generation {first.candidate.generation}; the largest one is opened."
    if first.evaluation.speedup and last.evaluation.speedup:
        factor = speedup_text(last.evaluation.speedup / first.evaluation.speedup)
        sentence = f"{count} made the first program {factor} as fast; the largest one is opened."
    if len(steps) > len(shown):
        sentence += f" Shown are the first, the last and the largest: {len(shown)} of {len(steps)}."
    return {"steps": shown, "lineage_sentence": sentence}


def _size(step: series.Step) -> float:
    """How much a step changed the speedup, up or down."""
    return abs(math.log(step.gain)) if step.gain else 0.0


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


def _route_rows(routes: Sequence[series.Route]) -> list[tuple[str, ...]]:
    total = max(1, sum(route.count for route in routes))
    return [
        (one_line(route.name, 20), f"{route.count:,}", f"{route.count / total:.0%}", one_line(route.reason, 160))
        for route in routes
    ]


def _arm_row(arm: operators.Arm) -> tuple[str, ...]:
    has_gain = arm.improved > 0
    return (
        one_line(arm.name, 60),
        f"{arm.asks:,}",
        f"{arm.valid:,}",
        f"{arm.correct:,}",
        f"{arm.elites:,}",
        f"{arm.improved:,}",
        f"×{arm.mean_gain:.2f}" if has_gain else "–",
        f"{arm.log_gain:.2f}" if has_gain else "–",
        usd_text(arm.cost_usd),
        seconds_text(arm.device_s),
        number_text(3600 * arm.log_gain / arm.device_s) if has_gain and arm.device_s else "–",
        number_text(arm.log_gain / arm.cost_usd) if has_gain and arm.cost_usd else "–",
    )


def _run_row(total: operators.Total) -> tuple[str, ...]:
    figures = (speedup_text(each[0], each[1:]) if each else "–" for each in (total.best, total.at_equal))
    return (
        one_line(total.run_name, 60),
        one_line(total.policy, 20) + (" (control)" if total.is_control else ""),
        f"{total.asks:,}",
        f"{total.evaluations:,}",
        f"{total.correct:,}",
        f"{total.elites:,}",
        usd_text(total.cost_usd),
        seconds_text(total.device_s),
        *figures,
    )


def usd_text(usd: float) -> str:
    """`$1.25`, `$0.0031`; a dash for nothing."""
    return "–" if not usd else f"${usd:.2f}" if usd >= 0.1 else f"${usd:.2g}"
