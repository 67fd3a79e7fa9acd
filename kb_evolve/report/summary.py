"""What a run found, as the plain text that ends it."""

from __future__ import annotations

from islands.candidate import Evaluated
from islands.run import Run
from kb_evolve.report import series
from kb_evolve.report.text import ms_text, one_line, speedup_text
from kb_evolve.report.warnings import warnings

STEPS_LIMIT = 30
"""Lines of descent that are printed; the first and the last ones where there are more."""


def summary_text(run: Run, history: series.History) -> str:
    """The best kernel with its interval, how it came about, the verdicts, and what to be wary of.

    Several lines, the last one without a newline; safe to print on a terminal whatever candidates wrote.
    """
    winner = series.best(history)
    where = f"{run.backend}, {run.device}, {run.precision}"
    lines = [f"{one_line(run.problem_id, 80)} ({where}), run {one_line(run.name, 80)}"]
    lines += _best_lines(winner, history) if winner else [_no_best(history)]
    lines += [f"verdicts: {_verdicts(history)}"] if history else []
    lines += [f"note: {warning}" for warning in warnings(run.config, history)]
    return "\n".join(lines)


def _best_lines(winner: Evaluated, history: series.History) -> list[str]:
    evaluation = winner.evaluation
    reached = speedup_text(evaluation.speedup, evaluation.speedup_ci)
    headline = (
        f"best: {reached} over {one_line(evaluation.baseline, 40)}, "
        f"{ms_text(evaluation.kernel_ms)} against {ms_text(evaluation.reference_ms)} "
        f"(candidate {winner.candidate.number} of island {winner.candidate.island})"
    )
    descent = series.lineage(history)
    steps = [_step_line(step) for step in descent]
    if len(steps) > STEPS_LIMIT:
        half = STEPS_LIMIT // 2
        steps = [*steps[:half], f"  … {len(steps) - 2 * half} steps", *steps[-half:]]
    noisy = any(step.gain is not None and not step.is_clear for step in descent)
    return [headline, f"how it came about{' (~: within noise)' if noisy else ''}:", *steps]


def _step_line(step: series.Step) -> str:
    candidate, evaluation = step.evaluated.candidate, step.evaluated.evaluation
    gain = f"x{step.gain:.2f}{' ' if step.is_clear else '~'}" if step.gain is not None else "start "
    reached = speedup_text(evaluation.speedup) if evaluation.is_correct else evaluation.verdict.value
    rationale = one_line(candidate.rationale, 100)
    return f"  {gain:>8} {reached:>7}  {one_line(candidate.mutator, 24)}{': ' + rationale if rationale else ''}"


def _no_best(history: series.History) -> str:
    return f"no correct candidate among {len(history)} evaluated" if history else "nothing was evaluated"


def _verdicts(history: series.History) -> str:
    return ", ".join(f"{count} {verdict.value}" for verdict, count in series.verdict_counts(history).items())
