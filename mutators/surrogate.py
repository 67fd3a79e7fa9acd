"""A model of kernel time over tunables, learnt from what was measured: where is it fast, and where does it work at all?

Two Gaussian processes over the same space (Rasmussen and Williams, Gaussian Processes for Machine Learning, chapters
2 and 5): one of log(kernel_ms) of the configurations that were timed, one of 1 for a configuration that worked and 0
for one that failed. Both have the covariance

    scale * (weight * mean_i m(d_i / l_i) + (1 - weight) * m(sqrt(sum_i (d_i / l_i)^2))),   m(r) = exp(-r) (1 + r)

where d_i is the distance of two values of tunable i: by their places in [0, 1] where they are numbers, else 0 or 1. The
first part is what tunables do on their own, learnt from few data; the other what they do together. m is Matern's with
nu = 3/2, for functions that are not smooth. Length scales, weight and nugget are the likeliest (equation 5.8), found by
steps along one of them at a time; `scale` follows from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from mutators.tunables import Tunable

LENGTHS = (0.15, 0.35, 0.8, 2.0, 5.0)
"""Length scales tried, in units of a tunable's whole range: at the last one it hardly matters."""
WEIGHTS = (0.1, 0.35, 0.7, 0.95)
NUGGETS = (1e-3, 2e-2)
"""Variance of what no tunable explains, noise included, as a share of `scale`."""
SWEEPS = 2
LEARNT_FROM = 64
"""Observations from which length scales are learnt, evenly spaced; predictions use all."""
LEAST_RISE = 0.1
"""A sweep that raises the log likelihood by less is the last one."""
JUMP = 0.25
"""Least distance of values that differ, as a share of a tunable's range: a number may be a mere name (`METHOD = 2`)."""
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
            distances.append((1.0 - numpy.eye(count)) * JUMP + (1.0 - JUMP) * abs(line[:, None] - line[None, :]))
            orders.append(tuple(int(one) for one in numpy.argsort(line, kind="stable")))
        else:
            distances.append(1.0 - numpy.eye(count))
            orders.append(())
    return Space(tunables, tuple(distances), tuple(orders))


@dataclass(frozen=True, slots=True)
class Shape:
    """The covariance's parameters."""

    lengths: tuple[float, ...]
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

        alone, together = 0.0, 0.0
        for place, (table, length) in enumerate(zip(self.space.distances, self.shape.lengths, strict=True)):
            scaled = table[:, self.rows[:, place]] / length  # by choice, not by row: rows are many, choices few
            alone = alone + ((1.0 + scaled) * numpy.exp(-scaled))[rows[:, place]]
            together = together + (scaled * scaled)[rows[:, place]]
        near = mixed(alone, together, len(self.shape.lengths), self.shape.weight)
        explained = numpy.einsum("ij,ij->i", near @ self.inverse, near)
        return self.mean + near @ self.pull, numpy.sqrt(self.scale * numpy.clip(1.0 - explained, 1e-9, None))


def covariance(gaps: list[Any], shape: Shape, parts: dict[tuple[int, float], Any] | None = None) -> Any:
    """The covariance without `scale` and nugget; `gaps` holds one matrix of distances for each tunable.

    `parts` keeps what a tunable contributes at a length scale, for as long as the gaps are the same.
    """
    import numpy

    parts = {} if parts is None else parts
    alone, together = 0.0, 0.0
    for place, length in enumerate(shape.lengths):
        if (part := parts.get((place, length))) is None:
            scaled = gaps[place] / length
            part = parts[place, length] = (1.0 + scaled) * numpy.exp(-scaled), scaled * scaled
        alone = alone + part[0]
        together = together + part[1]
    return mixed(alone, together, len(gaps), shape.weight)


def mixed(alone: Any, together: Any, count: int, weight: float) -> Any:
    """The covariance from the sums over tunables of m(d / l) and of (d / l)^2."""
    import numpy

    radius = numpy.sqrt(together)
    return weight / count * alone + (1.0 - weight) * (1.0 + radius) * numpy.exp(-radius)


def fit(space: Space, rows: Any, targets: Any) -> Process:
    """The likeliest process, given at least one observation."""
    import numpy

    shape = Shape((LENGTHS[2],) * len(space.tunables))
    if len(targets) > 3:
        every = -(-len(targets) // LEARNT_FROM)
        shape = _likeliest(_gaps(space, rows[::every]), targets[::every])
    gaps = _gaps(space, rows)
    inverse = numpy.linalg.inv(covariance(gaps, shape) + shape.nugget * numpy.eye(len(targets)))
    mean = float(inverse.sum(axis=0) @ targets / inverse.sum())
    pull = inverse @ (targets - mean)
    scale = max(1e-6, float((targets - mean) @ pull) / len(targets))
    return Process(space, shape, rows, inverse, mean, scale, pull)


def _gaps(space: Space, rows: Any) -> list[Any]:
    return [table[rows[:, i]][:, rows[:, i]] for i, table in enumerate(space.distances)]


def _likeliest(gaps: list[Any], targets: Any) -> Shape:
    """From the middle on, one parameter after the other takes the value that explains the targets best."""
    parts: dict[tuple[int, float], Any] = {}
    shape = Shape((LENGTHS[2],) * len(gaps))
    best = _log_likelihood(gaps, targets, shape, parts)
    for _ in range(SWEEPS):
        before = best
        for moved in _neighbours(shape):
            changed = moved(shape)
            found = _log_likelihood(gaps, targets, changed, parts)
            if found > best:
                best, shape = found, changed
        if best - before < LEAST_RISE:
            break
    return shape


def _neighbours(shape: Shape) -> list[Callable[[Shape], Shape]]:
    """Changes of one parameter: each length scale to its other values, then weight, then nugget."""

    def length(place: int, value: float) -> Callable[[Shape], Shape]:
        return lambda now: replace(now, lengths=(*now.lengths[:place], value, *now.lengths[place + 1 :]))

    def weight(value: float) -> Callable[[Shape], Shape]:
        return lambda now: replace(now, weight=value)

    def nugget(value: float) -> Callable[[Shape], Shape]:
        return lambda now: replace(now, nugget=value)

    lengths = [length(place, value) for place in range(len(shape.lengths)) for value in LENGTHS]
    return [*lengths, *map(weight, WEIGHTS), *map(nugget, NUGGETS)]


def _log_likelihood(gaps: list[Any], targets: Any, shape: Shape, parts: dict[tuple[int, float], Any]) -> float:
    """Up to a constant, for the best mean and scale, with what is expected of the length scales."""
    import numpy

    count = len(targets)
    try:
        root = numpy.linalg.cholesky(covariance(gaps, shape, parts) + shape.nugget * numpy.eye(count))
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
