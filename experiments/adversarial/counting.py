"""From repeated evaluations to what the suite must show: false scores, twins accepted, harmless variants' times."""

from __future__ import annotations

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
NEIGHBOURS = 2
"""Repetitions before and after that a twin's speed is taken from."""
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

    A hostile file that passed; or a passed one whose speedup is surely above that of its twin in the repetitions around
    it: with its whole 95% interval, or with the median of all its repetitions. A time that is too short and a reference
    that was slowed down both raise the speedup. Neither times nor speedups can be compared across a whole run: on a
    virtual machine whose speed changed by 40% in the middle of one, files that do what their twin does looked faster.
    """
    passed = [evaluation for evaluation in found if evaluation.verdict in PASSED]
    if kernel.expect == "rejected":
        return [f"passed: {evaluation.reason}" for evaluation in passed]
    if kernel.expect == "accepted":
        return []
    ratios = _ratios(found, twin)
    lines = [
        f"{e.kernel_ms:.4g} ms, {e.speedup:.4g}x: surely above {near:.4g}x / {faster}, the twin's at the time"
        for e, near in ratios
        if e.speedup_ci is not None and e.speedup_ci[0] > near / faster
    ]
    if not lines and ratios and statistics.median(near / _speedup(e) for e, near in ratios) < faster:
        lines.append(f"the median of {len(ratios)} repetitions takes less than {faster} of the twin's time")
    return lines


def time_ratio(
    found: Sequence[Evaluation], twin: Sequence[Evaluation]
) -> tuple[float | None, tuple[float, float] | None]:
    """Time over the twin's, and its 95% bootstrap interval; None where one of them was never timed."""
    ratios = [near / _speedup(e) for e, near in _ratios(found, twin)]
    if not ratios:
        return None, None
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]
    return statistics.median(ratios), (low, high)


def _ratios(found: Sequence[Evaluation], twin: Sequence[Evaluation]) -> list[tuple[Evaluation, float]]:
    """Each timed evaluation with the twin's median speedup in the repetitions around it: the machine's speed, and with
    it every ratio, may change in the course of a run."""
    pairs = []
    for index, evaluation in enumerate(found):
        around = twin[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1] or twin
        near = [_speedup(one) for one in around if one.is_correct]
        if evaluation.is_correct and near:
            pairs.append((evaluation, statistics.median(near)))
    return pairs


def _speedup(evaluation: Evaluation) -> float:
    assert evaluation.speedup is not None
    return evaluation.speedup


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
