"""A model of kernel time over tunables, learnt from what was measured: where is it fast, and where does it work at all?

Two Gaussian processes over the same space (Rasmussen and Williams, Gaussian Processes for Machine Learning, chapters
2 and 5): one of log(kernel_ms) of the configurations that were timed, one of 1 for a configuration that worked and 0
for one that failed. Both have the covariance

    scale * (weight * mean_i m(d_i / l_i) + (1 - weight) * m(sqrt(sum_i (d_i / l_i)^2))),   m(r) = exp(-r) (1 + r)

where d_i is the distance in tunable i: between places in [0, 1] where its values are numbers, else 0 or 1. The mean is
what tunables do on their own, learnt from few data; the other part is what they do together. m is Matern's with nu = 3/2,
for functions that are not smooth. Length scales and weight are the likeliest (equation 5.8) by steps along one of them
at a time; `scale` follows from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from mutators.tunables import Tunable

LENGTHS = (0.15, 0.35, 0.8, 2.0, 5.0)
"""Length scales tried, in units of a tunable's whole range: at the last one it hardly matters."""
WEIGHTS = (0.1, 0.35, 0.7, 0.95)
NUGGETS = (1e-3, 2e-2)
"""Variance of what no tunable explains, noise included, as a share of `scale`."""
SWEEPS = 2
LENGTH_SPREAD = 1.0
"""Standard deviation of log(length scale) around log(0.8) that is expected before anything is known."""


@dataclass(frozen=True, slots=True)
class Space:
    """The tunables as numbers: a configuration is a row of the numbers of its choices, shape (tunables,)."""

    tunables: tuple[Tunable, ...]
    distances: tuple[Any, ...]
    """For each tunable the distances between its choices, shape (choices, choices)."""
    orders: tuple[tuple[int, ...], ...]
    """For each tunable the numbers of its choices in ascending order; empty where they have none."""

    def encode(self, values: dict[str, str]) -> tuple[int, ...] | None:
        """The numbers of a configuration's choices; None where a value is no choice."""
        row = []
        for tunable in self.tunables:
            value = values.get(tunable.name)
            if value not in tunable.choices:
                return None
            row.append(tunable.choices.index(value))
        return tuple(row)

    def decode(self, row: Any) -> dict[str, str]:
        """The configuration of a row."""
        return {one.name: one.choices[int(number)] for one, number in zip(self.tunables, row, strict=True)}


def space_of(tunables: tuple[Tunable, ...]) -> Space:
    """The space that the tunables span."""
    import numpy

    distances, orders = [], []
    for tunable in tunables:
        count = len(tunable.choices)
        if tunable.is_ordinal:
            places = tunable.coordinates()
            line = numpy.array([places[choice] for choice in tunable.choices])
            distances.append(abs(line[:, None] - line[None, :]))
            orders.append(tuple(int(one) for one in numpy.argsort(line, kind="stable")))
        else:
            distances.append(1.0 - numpy.eye(count))
            orders.append(())
    return Space(tunables, tuple(distances), tuple(orders))


@dataclass(slots=True)
class Shape:
    """The covariance's parameters."""

    lengths: list[float]
    weight: float = 0.35
    nugget: float = NUGGETS[1]


@dataclass(frozen=True, slots=True)
class Process:
    """A fitted Gaussian process."""

    space: Space
    shape: Shape
    rows: Any
    """shape (observations, tunables)"""
    inverse: Any = field(repr=False)
    """Of the observations' covariance with nugget and without `scale`, shape (observations, observations)."""
    mean: float
    scale: float
    pull: Any = field(repr=False)
    """inverse @ (targets - mean)"""

    def predict(self, rows: Any) -> tuple[Any, Any]:
        """Means and standard deviations at `rows`, each of shape (rows,)."""
        import numpy

        gaps = [table[rows[:, i]][:, self.rows[:, i]] for i, table in enumerate(self.space.distances)]
        near = covariance(gaps, self.shape)
        explained = numpy.einsum("ij,ij->i", near @ self.inverse, near)
        return self.mean + near @ self.pull, numpy.sqrt(self.scale * numpy.clip(1.0 - explained, 1e-9, None))


def covariance(gaps: list[Any], shape: Shape) -> Any:
    """The covariance without `scale` and nugget; `gaps` holds one matrix of distances for each tunable."""
    import numpy

    alone, together = 0.0, 0.0
    for gap, length in zip(gaps, shape.lengths, strict=True):
        scaled = gap / length
        alone = alone + (1.0 + scaled) * numpy.exp(-scaled)
        together = together + scaled * scaled
    radius = numpy.sqrt(together)
    return shape.weight * alone / len(gaps) + (1.0 - shape.weight) * (1.0 + radius) * numpy.exp(-radius)


def fit(space: Space, rows: Any, targets: Any) -> Process:
    """The likeliest process, given at least one observation."""
    import numpy

    gaps = [table[rows[:, i]][:, rows[:, i]] for i, table in enumerate(space.distances)]
    shape = _likeliest(gaps, targets) if len(targets) > 3 else Shape([LENGTHS[2]] * len(gaps))
    inverse = numpy.linalg.inv(covariance(gaps, shape) + shape.nugget * numpy.eye(len(targets)))
    mean = float(inverse.sum(axis=0) @ targets / inverse.sum())
    pull = inverse @ (targets - mean)
    scale = max(1e-6, float((targets - mean) @ pull) / len(targets))
    return Process(space, shape, rows, inverse, mean, scale, pull)


def _likeliest(gaps: list[Any], targets: Any) -> Shape:
    """From the middle on, one parameter after the other takes the value that explains the targets best."""
    shape = Shape([LENGTHS[2]] * len(gaps))
    best = _log_likelihood(gaps, targets, shape)
    for _ in range(SWEEPS):
        before = best
        for place in range(len(gaps)):
            best = _climb(gaps, targets, shape, shape.lengths, place, LENGTHS, best)
        for name, values in (("weight", WEIGHTS), ("nugget", NUGGETS)):
            for value in values:
                old = getattr(shape, name)
                setattr(shape, name, value)
                found = _log_likelihood(gaps, targets, shape)
                if found > best:
                    best = found
                else:
                    setattr(shape, name, old)
        if best - before < 0.1:
            break
    return shape


def _climb(
    gaps: list[Any], targets: Any, shape: Shape, held: list[float], place: int, values: tuple[float, ...], best: float
) -> float:
    """Moves one length scale step by step as long as the likelihood grows; returns the best likelihood."""
    for step in (1, -1):
        moved = False
        while 0 <= (at := values.index(held[place]) + step) < len(values):
            old, held[place] = held[place], values[at]
            found = _log_likelihood(gaps, targets, shape)
            if found <= best:
                held[place] = old
                break
            best, moved = found, True
        if moved:
            break
    return best


def _log_likelihood(gaps: list[Any], targets: Any, shape: Shape) -> float:
    """Up to a constant, for the best mean and scale, with what is expected of the length scales."""
    import numpy

    count = len(targets)
    try:
        root = numpy.linalg.cholesky(covariance(gaps, shape) + shape.nugget * numpy.eye(count))
    except numpy.linalg.LinAlgError:
        return -math.inf
    whitened = numpy.linalg.solve(root, numpy.column_stack([targets, numpy.ones(count)]))
    mean = float(whitened[:, 1] @ whitened[:, 0] / (whitened[:, 1] @ whitened[:, 1]))
    rest = whitened[:, 0] - mean * whitened[:, 1]
    scale = max(1e-9, float(rest @ rest) / count)
    prior = sum((math.log(one / LENGTHS[2]) / LENGTH_SPREAD) ** 2 for one in shape.lengths) / 2
    return -0.5 * count * math.log(scale) - float(numpy.log(numpy.diag(root)).sum()) - prior


def expected_gain(mean: Any, deviation: Any, best: float) -> Any:
    """Expected improvement on `best` of quantities that should be small (Jones et al. 1998, equation 15)."""
    import numpy

    standard = (best - mean) / deviation
    density = numpy.exp(-0.5 * standard**2) / math.sqrt(2 * math.pi)
    return deviation * (standard * _normal(standard) + density)


def _normal(standard: Any) -> Any:
    """The standard normal distribution function."""
    import numpy

    return 0.5 * (1.0 + numpy.vectorize(math.erf, otypes=[float])(standard / math.sqrt(2)))
