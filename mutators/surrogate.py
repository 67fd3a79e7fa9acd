"""A small model of kernel time over tunables, learnt from a handful of measurements.

log(kernel_ms) = constant + main effects + pairwise effects, a Bayesian linear regression (ridge with a noise
estimate; Bishop, Pattern Recognition and Machine Learning, equations 3.50 to 3.54). Ordered tunables enter as their
place x in [0, 1] and x^2, so near values inform each other; others as one indicator per value. Main effects have a
wider prior than pairwise ones: few data are spent on what usually matters most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any

from mutators.tunables import Tunable

MAIN_VARIANCE, PAIR_VARIANCE, NOISE_FLOOR = 1.0, 0.15, 0.02
"""In units of (log ms)^2; the floor stands for 15% between two measurements of one kernel, gross but safe."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured configuration."""

    values: dict[str, str]
    kernel_ms: float


@dataclass(frozen=True, slots=True)
class Posterior:
    """Mean and covariance of the weights."""

    mean: Any
    """shape (features,)"""
    covariance: Any
    """shape (features, features)"""
    best_log_ms: float


def features(tunables: tuple[Tunable, ...], values: dict[str, str]) -> list[tuple[float, float]]:
    """(feature, prior variance) pairs: constant, main effects, products of main effects of two tunables."""
    groups = []
    for tunable in tunables:
        value = values[tunable.name]
        if tunable.is_ordinal:
            place = 2 * tunable.coordinates()[value] - 1
            groups.append([place, place * place - 1 / 3])
        else:
            groups.append([1.0 if value == choice else 0.0 for choice in tunable.choices])
    row = [(1.0, 100.0)] + [(entry, MAIN_VARIANCE) for group in groups for entry in group]
    for first in range(len(groups)):
        for second in range(first):
            row += [(a * b, PAIR_VARIANCE) for a in groups[first] for b in groups[second]]
    return row


def fit(tunables: tuple[Tunable, ...], observations: list[Observation]) -> Posterior:
    """The posterior given at least one observation."""
    import numpy

    rows = [features(tunables, observation.values) for observation in observations]
    design = numpy.array([[entry for entry, _ in row] for row in rows])
    prior = numpy.array([1.0 / variance for _, variance in rows[0]])
    target = numpy.array([math.log(observation.kernel_ms) for observation in observations])
    noise = NOISE_FLOOR
    for _ in range(3):
        covariance = numpy.linalg.inv(numpy.diag(prior) + design.T @ design / noise)
        mean = covariance @ design.T @ target / noise
        residual = target - design @ mean
        noise = max(NOISE_FLOOR, float(residual @ residual) / max(1, len(target) - 1))
    return Posterior(mean, covariance, float(target.min()))


def best_by_draw(
    posterior: Posterior, tunables: tuple[Tunable, ...], candidates: list[dict[str, str]], random: Random
) -> tuple[dict[str, str], float]:
    """(configuration, predicted ms) of the candidate that is fastest under one draw of the weights.

    Thompson sampling: a configuration is proposed as often as it is likely to be the best.
    """
    import numpy

    design = numpy.array([[entry for entry, _ in features(tunables, values)] for values in candidates])
    root = numpy.linalg.cholesky(posterior.covariance + 1e-9 * numpy.eye(len(posterior.mean)))
    normal = numpy.array([random.gauss(0.0, 1.0) for _ in range(len(posterior.mean))])
    drawn = design @ (posterior.mean + root @ normal)
    place = int(numpy.argmin(drawn))
    return candidates[place], math.exp(float(design[place] @ posterior.mean))
