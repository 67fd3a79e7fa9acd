"""Which of two correct candidates is the better one, given that both were measured with noise."""

from __future__ import annotations

import math

from fitness.evaluation import Evaluation


def fitness(evaluation: Evaluation) -> float:
    """log(speedup) of a correct evaluation, minus infinity otherwise.

    The logarithm makes a gain from 1x to 2x worth one from 2x to 4x, and intervals about symmetric.
    """
    return math.log(evaluation.speedup) if evaluation.speedup is not None else -math.inf


def beats(challenger: Evaluation, holder: Evaluation | None) -> bool:
    """Does the challenger take the holder's place? One rule for cells, islands and the whole population.

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
