"""How near an output lies to the reference's own, so that the oracle need not be asked: most do, and this is quick."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitness.roundoff import finite, parts, power_of_two, same_kind
from fitness.verify import Expected

if TYPE_CHECKING:
    import torch

_GPU_CACHED, _SMALL = 1 << 24, 1 << 18
"""Elements whose difference mostly stays in a GPU's cache; fewer than these are judged together with other calls'."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near to the reference's own result an output must be to count as right without asking the oracle."""

    worst: torch.Tensor | None
    factor: float

    @classmethod
    def of(cls, expected: Sequence[Expected | Nearness]) -> Nearness:
        """From the bounds of several draws of the same output."""
        import torch

        tables = [one.worst for one in expected if one.worst is not None]
        table = torch.stack(tables).amax(0) if tables else None
        return cls(table, max(one.factor for one in expected))


def are_near(
    pairs: Sequence[tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]], nearness: Sequence[Nearness]
) -> bool:
    """Whether all outputs of these calls, (candidate's, reference's), are near: |a - r| <= 4 E(r) + c u S(r)
    everywhere, with E from other draws; what is not near may still be right.

    Since |r - y| <= E(y), what is near lies within about 5 E + c u S of the exact result. Calls are judged together,
    since waiting for the device once per small output would take longer than the calls.
    """
    import torch

    for index, near in enumerate(nearness):
        actual, reference = ([outputs[index].reshape(-1) for outputs in side] for side in zip(*pairs, strict=True))
        if actual[0].numel() < _SMALL:
            actual, reference = [torch.cat(actual)], [torch.cat(reference)]
        is_exact = near.worst is None or not actual[0].is_floating_point()
        if not is_exact and _are_within_least(actual, reference, near.factor):
            continue
        for ours, theirs in zip(reference, actual, strict=True):
            if not (bool((theirs == ours).all()) if is_exact else _is_near(theirs, ours, near)):
                return False
    return True


def _are_within_least(actual: Sequence[torch.Tensor], reference: Sequence[torch.Tensor], factor: float) -> bool:
    """Whether every difference is within the least bound there is, c u rms(r): most outputs are, and what takes few
    passes over them is quick. Waits for the device once."""
    import torch

    squares, largest = [], []
    for theirs, ours in zip(actual, reference, strict=True):
        for start in range(0, ours.numel(), _GPU_CACHED):
            part = slice(start, start + _GPU_CACHED)
            largest.append(torch.linalg.vector_norm(theirs[part] - ours[part], ord=math.inf))
        squares.append(torch.linalg.vector_norm(ours, dtype=torch.float32))
    if not largest:
        return True
    most = float(torch.stack(largest).max())
    square = float(torch.stack(squares).double().square().sum())
    rms = math.sqrt(square / sum(ours.numel() for ours in reference)) if math.isfinite(square) else math.nan
    return most <= factor * rms  # not so where either is not a number


def _is_near(actual: torch.Tensor, reference: torch.Tensor, nearness: Nearness) -> bool:
    """`are_near` for one flat output."""
    import torch

    slices = parts(reference)
    squares = sum(float(torch.linalg.vector_norm(reference[p], dtype=torch.float32)) ** 2 for p in slices)
    rms = math.sqrt(squares / max(1, reference.numel()))
    if math.isfinite(rms) and all(_is_within_rounding(actual[p], reference[p], rms, nearness.factor) for p in slices):
        return True
    squares = sum(float(finite(reference[p].double(), reference.dtype)[0].square().sum()) for p in slices)
    rms = math.sqrt(squares / max(1, reference.numel()))
    return all(_part_is_near(actual[p], reference[p], rms, nearness) for p in slices)


def _is_within_rounding(actual: torch.Tensor, reference: torch.Tensor, rms: float, factor: float) -> bool:
    """The quick half of `_is_near`: without E, in the output's own type, which is off by far less than c u."""
    difference = (actual - reference).abs_()
    return bool((difference <= reference.abs().clamp_min_(rms).mul_(factor)).all())


def _part_is_near(actual: torch.Tensor, reference: torch.Tensor, rms: float, nearness: Nearness) -> bool:
    import torch

    assert nearness.worst is not None
    r, is_finite = finite(reference.double(), reference.dtype)
    bound = 4 * nearness.worst[power_of_two(r)] + nearness.factor * r.abs().clamp_min_(rms)
    bound += torch.finfo(reference.dtype).tiny
    near = ((actual.double() - r).abs_() <= bound) & is_finite
    return bool((near | (~is_finite & same_kind(actual, reference))).all())
