"""Which of two correct candidates is the better one, given that both were measured with noise.

`beats` is the rule of cells and islands. The elite of a whole run is another matter: of a thousand equal proposals the
luckiest is always first, so its rule (`Gain.is_clear`) is for fresh measurements; see islands/duels.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from fitness.evaluation import Evaluation


def fitness(evaluation: Evaluation) -> float:
    """log(speedup) of a correct evaluation, minus infinity otherwise.

    The logarithm makes a gain from 1x to 2x worth one from 2x to 4x, and intervals about symmetric.
    """
    return math.log(evaluation.speedup) if evaluation.speedup is not None else -math.inf


def beats(challenger: Evaluation, holder: Evaluation | None) -> bool:
    """Does the challenger take the holder's place? One rule for cells and islands.

    A correct challenger beats no holder and any holder that is not correct. Otherwise, on the log scale,
    either its 95% lower bound must lie above the holder's median, or its median must lie above the holder's
    by more than the joint half-width of both intervals, sqrt(a^2 + b^2) with a below the challenger and b
    above the holder (independent errors add in squares). A tie leaves the holder: equal kernels do not
    drift, and the luck of one measurement is not taken for a gain.
    """
    if challenger.speedup is None or challenger.speedup_ci is None:
        return False
    if holder is None or holder.speedup is None or holder.speedup_ci is None:
        return True
    if challenger.speedup_ci[0] > holder.speedup:
        return True
    below = math.log(challenger.speedup / challenger.speedup_ci[0])
    above = math.log(holder.speedup_ci[1] / holder.speedup)
    return math.log(challenger.speedup / holder.speedup) > math.hypot(below, above)


TWO_SIDED_95 = 1.959964
ONE_SIDED_99 = 2.326348
"""Quantiles of the normal distribution: of the judge's 95% intervals, and of the bound that a new elite must reach."""
LEAST_GAIN = 0.005
"""A would-be elite of the whole run must be faster by more than this: less is not worth a change."""
LEAST_ERROR = 1e-4
"""Standard error of log(speedup) below which none is believed: a bootstrap over equal rounds gives zero."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How much faster one kernel is than another, on the log scale."""

    log_gain: float
    error: float
    """Standard error of `log_gain`."""

    @property
    def least(self) -> float:
        """The one-sided 99% lower bound."""
        return self.log_gain - ONE_SIDED_99 * self.error

    @property
    def is_clear(self) -> bool:
        """Whether the lower bound lies above LEAST_GAIN: the rule by which a duel is won."""
        return self.least > math.log1p(LEAST_GAIN)

    @property
    def is_notable(self) -> bool:
        """Whether the estimate itself lies above LEAST_GAIN: worth a duel."""
        return self.log_gain > math.log1p(LEAST_GAIN)

    @property
    def is_promising(self) -> bool:
        """Whether the estimate lies above LEAST_GAIN by more than its error: one more measurement may decide."""
        return self.log_gain - self.error > math.log1p(LEAST_GAIN)

    def __str__(self) -> str:
        return f"{math.expm1(self.log_gain):+.2%} (99% lower bound {math.expm1(self.least):+.2%})"


def error_of(evaluation: Evaluation) -> float:
    """Standard error of log(speedup), from the 95% interval of a correct evaluation."""
    assert evaluation.speedup_ci is not None
    low, high = evaluation.speedup_ci
    return max(math.log(high / low) / (2 * TWO_SIDED_95), LEAST_ERROR)


def gain_over(challenger: Evaluation, holder: Evaluation) -> Gain:
    """The gain of one correct evaluation over another.

    Each was measured against the reference in rounds of its own, so their errors are independent and add as squares.
    """
    return Gain(fitness(challenger) - fitness(holder), math.hypot(error_of(challenger), error_of(holder)))


def identity_of(evaluation: Evaluation) -> tuple[str, str]:
    """By which judge, on which device: figures of different ones are not compared."""
    return evaluation.judge_sha256, evaluation.device_name


def pooled(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Several correct evaluations of one program as one: the newest, with the times of all by its judge and device.

    Logarithms are averaged with weights 1/error^2. Where the estimates scatter more than their intervals say, the
    joint error is widened by sqrt(chi^2 / (n - 1)) (Birge, Physical Review 40, 1932): one outlier shows as doubt.
    """
    newest = evaluations[-1]
    alike = [one for one in evaluations if identity_of(one) == identity_of(newest)]
    if len(alike) == 1:
        return newest
    weights = [1 / error_of(one) ** 2 for one in alike]
    speedup = _mean([one.speedup for one in alike], weights)
    chi2 = sum(weight * (fitness(one) - math.log(speedup)) ** 2 for weight, one in zip(weights, alike, strict=True))
    error = math.sqrt(max(chi2 / (len(alike) - 1), 1.0) / sum(weights))
    kernel_ms = _mean([one.kernel_ms for one in alike], weights)
    width = math.exp(TWO_SIDED_95 * error)
    return dataclasses.replace(
        newest,
        speedup=speedup,
        speedup_ci=(speedup / width, speedup * width),
        kernel_ms=kernel_ms,
        kernel_ms_ci=(kernel_ms / width, kernel_ms * width),
        reference_ms=_mean([one.reference_ms for one in alike], weights),
        rounds=sum(one.rounds for one in alike),
        draws=sum(one.draws for one in alike),
    )


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float:
    """The weighted geometric mean."""
    pairs = zip(values, weights, strict=True)
    return math.exp(sum(weight * math.log(value) for value, weight in pairs if value) / sum(weights))
