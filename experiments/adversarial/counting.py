"""From repeated evaluations to what the suite must show: false scores, twins accepted, harmless variants' times."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.adversarial.catalogue import Kernel
from fitness.evaluation import Evaluation, Verdict

FASTER = 0.95
"""A score is false when its time lies below this share of the honest twin's (issue 3)."""
ACCEPTED_SHARE = 0.995
HARMLESS_RATIO = 0.02
PASSED = (Verdict.CORRECT, Verdict.VERIFIED)
RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What all repetitions of one kernel came to."""

    kernel: Kernel
    verdicts: dict[str, int]
    false_scores: tuple[str, ...]
    """Why each of them is one."""
    unexpected: int
    """Rejections with another verdict than the file says is right."""
    requeued: int
    kernel_ms: float | None
    time_ratio: float | None
    """Time over the twin's, from the speedups over the reference: medians over the repetitions."""
    time_ratio_ci: tuple[float, float] | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        kernel = self.kernel
        return {
            "kernel": kernel.key,
            "group": kernel.group,
            "mechanism": kernel.mechanism,
            "problem": kernel.problem,
            "twin": kernel.twin or None,
            "expect": kernel.expect,
            "verdicts": self.verdicts,
            "false_scores": list(self.false_scores),
            "unexpected_verdicts": self.unexpected,
            "requeued": self.requeued,
            "kernel_ms": self.kernel_ms,
            "time_ratio": self.time_ratio,
            "time_ratio_ci": self.time_ratio_ci,
            "reason": self.reason,
        }


def outcome(
    kernel: Kernel, found: Sequence[Evaluation], twin: Sequence[Evaluation], requeued: int = 0, faster: float = FASTER
) -> Outcome:
    """Counts one kernel's evaluations; `twin` holds the evaluations of its honest twin (empty for an honest file)."""
    verdicts = Counter(str(evaluation.verdict) for evaluation in found)
    rejected = [e for e in found if e.verdict not in (*PASSED, Verdict.NO_VERDICT)]
    unexpected = sum(bool(kernel.verdicts) and str(e.verdict) not in kernel.verdicts for e in rejected)
    ratio, interval = time_ratio(found, twin)
    times = [e.kernel_ms for e in found if e.kernel_ms is not None]
    typical = verdicts.most_common(1)[0][0] if verdicts else ""
    return Outcome(
        kernel=kernel,
        verdicts=dict(verdicts),
        false_scores=tuple(false_scores(kernel, found, twin, faster)),
        unexpected=unexpected,
        requeued=requeued,
        kernel_ms=statistics.median(times) if times else None,
        time_ratio=ratio,
        time_ratio_ci=interval,
        reason=next((e.reason for e in found if e.verdict == typical), ""),
    )


def false_scores(
    kernel: Kernel, found: Sequence[Evaluation], twin: Sequence[Evaluation], faster: float = FASTER
) -> list[str]:
    """One line for every evaluation that must not exist.

    A hostile file that passed; or a passed one that is surely faster than its twin: with its whole 95% interval, of
    the time or of the speedup (which a slowed reference would raise), or with the median of all its repetitions.
    """
    passed = [evaluation for evaluation in found if evaluation.verdict in PASSED]
    if kernel.expect == "rejected":
        return [f"passed: {evaluation.reason}" for evaluation in passed]
    timed, honest = [e for e in passed if e.is_correct], [e for e in twin if e.is_correct]
    if kernel.expect == "accepted" or not timed or not honest:
        return []
    least_ms = faster * _median(honest, "kernel_ms")
    most = _median(honest, "speedup") / faster
    lines = [
        f"{e.kernel_ms:.4g} ms, {e.speedup:.4g}x: surely faster than {least_ms:.4g} ms or {most:.4g}x"
        for e in timed
        if e.kernel_ms_ci[1] < least_ms or e.speedup_ci[0] > most  # type: ignore[index]
    ]
    if not lines and (_median(timed, "kernel_ms") < least_ms or _median(timed, "speedup") > most):
        lines.append(f"the median of {len(timed)} repetitions is faster than {least_ms:.4g} ms or {most:.4g}x")
    return lines


def time_ratio(
    found: Sequence[Evaluation], twin: Sequence[Evaluation]
) -> tuple[float | None, tuple[float, float] | None]:
    """Time over the twin's, and its 95% bootstrap interval; None where one of them was never timed."""
    ours = [math.log(e.speedup) for e in found if e.speedup is not None]
    theirs = [math.log(e.speedup) for e in twin if e.speedup is not None]
    if not ours or not theirs:
        return None, None
    generator = random.Random(0)
    ratios = sorted(
        statistics.median(generator.choices(theirs, k=len(theirs)))
        - statistics.median(generator.choices(ours, k=len(ours)))
        for _ in range(RESAMPLES)
    )
    low, high = ratios[int(0.025 * RESAMPLES)], ratios[int(0.975 * RESAMPLES) - 1]
    return math.exp(statistics.median(theirs) - statistics.median(ours)), (math.exp(low), math.exp(high))


def totals(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The suite's figures over all kernels."""
    hostile = [o for o in outcomes if not o.kernel.is_honest]
    honest = [o for o in outcomes if o.kernel.is_honest]
    judged = sum(_judged(o) for o in honest)
    accepted = sum(o.verdicts.get(str(verdict), 0) for o in honest for verdict in PASSED)
    harmless = [o for o in honest if o.kernel.expect == "accepted-harmless" and o.time_ratio is not None]
    return {
        "kernels": len(outcomes),
        "hostile": len(hostile),
        "honest": len(honest),
        "evaluations": sum(sum(o.verdicts.values()) for o in outcomes),
        "false_scores": sum(len(o.false_scores) for o in outcomes),
        "honest_accepted": accepted,
        "honest_judged": judged,
        "honest_share": accepted / judged if judged else None,
        "harmless_beyond_2_percent": [o.kernel.key for o in harmless if _is_beyond(o)],
        "unexpected_verdicts": sum(o.unexpected for o in outcomes),
        "requeued": sum(o.requeued for o in outcomes),
    }


def is_passed(figures: dict[str, Any]) -> bool:
    """No false score, and honest kernels accepted often enough."""
    share = figures["honest_share"]
    return figures["false_scores"] == 0 and (share is None or share >= ACCEPTED_SHARE)


def _judged(outcome: Outcome) -> int:
    return sum(outcome.verdicts.values()) - outcome.verdicts.get(str(Verdict.NO_VERDICT), 0)


def _is_beyond(outcome: Outcome) -> bool:
    return outcome.time_ratio is not None and abs(outcome.time_ratio - 1) > HARMLESS_RATIO


def _median(evaluations: Sequence[Evaluation], name: str) -> float:
    return statistics.median(getattr(evaluation, name) for evaluation in evaluations)
