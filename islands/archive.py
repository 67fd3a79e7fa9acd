"""The Pareto archive: kernels that no other one beats in time, memory, error and energy at once."""

from __future__ import annotations

import math
from collections.abc import Iterable

from islands.candidate import Evaluated

Objectives = tuple[float, float, float, float]
"""(kernel_ms, peak_mem_bytes, error_ratio, energy_mj), all minimised; energy [mJ] for each call, where it is known."""

ENERGY = "energy_mj"
"""Feature of an evaluation: energy of one call [mJ]."""


def objectives(evaluated: Evaluated) -> Objectives:
    """What the archive compares; see `numbers`."""
    evaluation = evaluated.evaluation
    return numbers(
        evaluation.kernel_ms, evaluation.peak_mem_bytes, evaluation.error_ratio, evaluation.features.get(ENERGY)
    )


def numbers(*values: object) -> Objectives:
    """The four values; one that was not measured, or is no number, counts as the worst."""
    kernel_ms, memory, error, energy = (_number(value) for value in values)
    return kernel_ms, memory, error, energy


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not math.isnan(value) else math.inf


def pareto(evaluated: Iterable[Evaluated]) -> list[Evaluated]:
    """The correct candidates that no other one dominates, fastest first.

    The caller passes candidates of one problem, device and precision. Of equals in all objectives
    the first one given is kept.
    """
    archive = Archive()
    for one in evaluated:
        archive.add(one)
    return archive.front()


class Archive:
    """A Pareto front that is kept while candidates arrive; adding costs one pass over the front."""

    def __init__(self) -> None:
        self._front: list[tuple[Objectives, Evaluated]] = []

    def add(self, evaluated: Evaluated) -> bool:
        """Takes a correct candidate in unless a member is at least as good in everything; says if it did."""
        if not evaluated.evaluation.is_correct:
            return False
        new = objectives(evaluated)
        if any(covers(old, new) for old, _ in self._front):
            return False
        self._front = [(old, member) for old, member in self._front if not covers(new, old)]
        self._front.append((new, evaluated))
        return True

    def front(self) -> list[Evaluated]:
        """The members, fastest first."""
        return [member for _, member in sorted(self._front, key=lambda item: item[0])]


def covers(a: Objectives, b: Objectives) -> bool:
    """Is `a` at least as good as `b` in every objective?"""
    return a[0] <= b[0] and a[1] <= b[1] and a[2] <= b[2] and a[3] <= b[3]
