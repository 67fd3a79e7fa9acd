"""Is an output right? Elementwise bounds around an fp64 oracle, wide enough for honest rounding only.

For one output tensor with fp64 result y and the reference's own fp32 result r, an element a is accepted when

    |a - y| <= max(4 E(y), c u S(y)),    c = min(4 sqrt(K), 1600)

- E(y): the largest |r - y| among the elements whose |y| lies within a factor of two or so (same or neighbouring
  power of two): the reference's own error at that magnitude. Judging an element by its own luck would be unfair.
- u: unit roundoff of the output's type. K: the longest sum that the problem can contain. sqrt(K) is the
  growth of rounding error in a sum of K terms with random signs (Higham and Mary, "A New Approach to Probabilistic
  Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019); 4 is our margin. The cap keeps c u below 1e-4 in fp32,
  KernelBench's own tolerance, and below what TF32 arithmetic gives (u = 2^-11).
- S(y) = max(|y|, rms(y)): cancellation may leave an absolute error of the size of the terms.

Elements where the reference itself is unusable (off by 1% of S, or not finite where the exact result is) are left out;
where more than one in a thousand is, the whole draw is unusable for that problem. NaN and infinity must match.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
_KERNELBENCH_TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
_MARGIN, _CAP = 4.0, 1600.0
_UNUSABLE_SHARE = 1e-3
"""Attention on edge values shows why so small: scores near 1e7 turn a rounding into a large factor, the reference goes
astray on 1 to 2% of the elements, and on the rest an honest kernel may go astray where the reference does not."""
_EXPONENTS = 1100
"""Half the range of binary exponents of fp64, with room."""
_PART = 1 << 14
"""Elements handled at once: below torch's grain of 32,768, so that no thread pool has to be woken."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What one output tensor may be, elementwise, in the output's own type."""

    low: torch.Tensor
    high: torch.Tensor
    """For integer outputs `low` and `high` are the two accepted values instead of a range."""
    nan: torch.Tensor | None
    """Where NaN is the right answer; None where nowhere."""
    unusable_share: float
    reference_rms_err: float
    rms: float
    exact: torch.Tensor | None
    reference: torch.Tensor | None

    @property
    def is_usable(self) -> bool:
        return self.unusable_share <= _UNUSABLE_SHARE

    @property
    def nbytes(self) -> int:
        return 2 * self.low.numel() * self.low.element_size()


@dataclass(frozen=True, slots=True)
class Errors:
    """How far one accepted output lies from the oracle."""

    max_abs_err: float
    ratio: float
    """RMS error over the reference's RMS error (not less than a quarter of a rounding of the result)."""
    kernelbench_correct: bool


def longest_sum(shapes: Sequence[tuple[int, ...]], output_shapes: Sequence[tuple[int, ...]]) -> int:
    """An upper bound, from shapes of inputs and weights alone, on the terms of any sum in the problem.

    The largest dimension, a filter's elements per output channel, or all inputs per output element.
    """
    numels = [math.prod(shape) for shape in shapes]
    outputs = max(1, min((math.prod(shape) for shape in output_shapes), default=1))
    longest = max((max(shape, default=1) for shape in shapes), default=1)
    filters = max(
        (math.prod(shape[1:]) for shape in shapes if 3 <= len(shape) <= 5 and max(shape[2:]) <= 16), default=1
    )
    return max(2, longest, filters, max(numels, default=1) // outputs)


def expect(reference: torch.Tensor, exact: torch.Tensor, terms: int, *, keep: bool = False) -> Expected:
    """The bounds for one output; `keep` retains the oracle itself for `errors`."""
    import torch

    if not reference.is_floating_point():
        kept = reference.clone() if keep else None
        return Expected(reference.clone(), exact.to(reference.dtype), None, 0.0, 0.0, 1.0, kept, kept)
    flat, truth = reference.reshape(-1), exact.reshape(-1)
    rms, worst, squares = _survey(flat, truth)
    factor = min(_MARGIN * math.sqrt(terms), _CAP) * roundoff(reference.dtype)
    low, high = torch.empty_like(flat), torch.empty_like(flat)
    nan = torch.zeros_like(flat, dtype=torch.bool)
    loose = 0
    for part in _parts(flat.numel()):
        pieces = low[part], high[part], nan[part]
        loose += _bound(flat[part], truth[part], pieces, rms=rms, worst=worst, factor=factor)
    count = max(1, flat.numel())
    return Expected(
        low.view(reference.shape),
        high.view(reference.shape),
        nan.view(reference.shape) if bool(nan.any()) else None,
        loose / count,
        math.sqrt(squares / count),
        rms,
        exact.clone() if keep else None,
        reference.clone() if keep else None,
    )


def _survey(reference: torch.Tensor, exact: torch.Tensor) -> tuple[float, torch.Tensor, float]:
    """rms(y), the largest usable error per power of two of |y|, and the sum of squared usable errors."""
    import torch

    squares = 0.0
    for part in _parts(exact.numel()):
        y, _ = _finite(exact[part], reference.dtype)
        squares += float(y.square().sum())
    rms = math.sqrt(squares / max(1, exact.numel()))
    worst, error_squares = torch.zeros(2 * _EXPONENTS + 1, dtype=torch.float64), 0.0
    for part in _parts(exact.numel()):
        y, is_finite = _finite(exact[part], reference.dtype)
        error = (reference[part].double() - y).abs_()
        error = torch.where(is_finite & (error <= _usable_error(y, rms, reference.dtype)), error, 0.0)
        worst.scatter_reduce_(0, _power_of_two(y), error, "amax")
        error_squares += float(error.square().sum())
    neighbours = torch.nn.functional.max_pool1d(worst[None, None], 3, stride=1, padding=1)[0, 0]
    return rms, neighbours, error_squares


def _bound(
    reference: torch.Tensor,
    exact: torch.Tensor,
    into: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    *,
    rms: float,
    worst: torch.Tensor,
    factor: float,
) -> int:
    """Writes low, high and where NaN is right; returns how many elements are left out."""
    import torch

    low, high, nan = into
    dtype = reference.dtype
    y, is_finite = _finite(exact, dtype)
    bound = torch.maximum(4 * worst[_power_of_two(y)], factor * y.abs().clamp_min_(rms)) + torch.finfo(dtype).tiny
    low.copy_(y - bound)  # rounded to nearest in the output's type: half an ulp is far inside the margin
    high.copy_(y + bound)
    unusable = is_finite & ~((reference.double() - y).abs_() <= _usable_error(y, rms, dtype))
    if bool(is_finite.all()) and not bool(unusable.any()):
        return 0
    narrow = exact.to(dtype)
    infinite = torch.isinf(narrow)
    low[infinite], high[infinite] = narrow[infinite], narrow[infinite]
    loose = unusable | (~is_finite & ~_same_kind(reference, narrow))
    low.masked_fill_(loose, -math.inf)
    high.masked_fill_(loose, math.inf)
    nan.copy_(torch.isnan(narrow) & ~loose)
    return int(loose.sum())


def _parts(count: int) -> list[slice]:
    """Slices that stay in the cache: fresh pages for large temporaries would cost more than the arithmetic."""
    return [slice(start, min(start + _PART, count)) for start in range(0, count, _PART)]


def _finite(exact: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact values with 0 where the output's type cannot hold them, and where it can."""
    import torch

    is_finite = exact.abs() <= torch.finfo(dtype).max
    return torch.where(is_finite, exact, 0.0), is_finite


def _usable_error(exact: torch.Tensor, rms: float, dtype: torch.dtype) -> torch.Tensor:
    import torch

    return exact.abs().clamp_min_(rms).mul_(0.01).add_(torch.finfo(dtype).tiny)


def _power_of_two(exact: torch.Tensor) -> torch.Tensor:
    """The binary exponent of each element as an index into a table of 2 _EXPONENTS + 1."""
    import torch

    return torch.frexp(exact).exponent.long().clamp_(-_EXPONENTS, _EXPONENTS).add_(_EXPONENTS)


def roundoff(dtype: torch.dtype) -> float:
    """Unit roundoff u: half the distance from 1 to the next number."""
    return _ROUNDOFF[str(dtype).removeprefix("torch.")]


def is_right(actual: torch.Tensor, expected: Expected) -> bool:
    """Whether every element is acceptable; `actual` has the expected shape and dtype."""
    if not actual.is_floating_point() or expected.nan is not None:
        return bool(_accepted(actual, expected).all())
    flat, low, high = actual.reshape(-1), expected.low.reshape(-1), expected.high.reshape(-1)
    return all(bool(((flat[part] >= low[part]) & (flat[part] <= high[part])).all()) for part in _parts(flat.numel()))


def complaint(actual: torch.Tensor, expected: Expected) -> str:
    """Where and by how much an output is wrong, for a person."""
    import torch

    wrong = ~_accepted(actual, expected)
    count = int(wrong.sum())
    middle = (expected.low.double() + expected.high.double()) / 2
    distance = (actual.double() - middle).abs().nan_to_num(nan=math.inf)
    worst = int(torch.where(wrong, distance, -1.0).flatten().argmax())
    place = [int(index) for index in torch.unravel_index(torch.tensor(worst), actual.shape)] if actual.dim() else []
    got, low, high = (float(t.flatten()[worst]) for t in (actual, expected.low, expected.high))
    wanted = f"{low:.8g} to {high:.8g}" if actual.is_floating_point() else f"{low:.0f}"
    share = 100 * count / max(1, actual.numel())
    return (
        f"{count} of {actual.numel()} elements ({share:.3g}%) are wrong; "
        f"worst at {place}: got {got:.8g}, expected {wanted}"
    )


def errors(actual: torch.Tensor, expected: Expected) -> Errors:
    """How an accepted output compares with the oracle; needs an Expected made with `keep=True`."""
    import torch

    assert expected.exact is not None and expected.reference is not None
    if not actual.is_floating_point():
        return Errors(0.0, 1.0, bool((actual == expected.reference).all()))
    difference = (actual.double() - expected.exact).abs()
    difference = difference[torch.isfinite(difference)]
    rms_err = float(difference.square().mean().sqrt()) if difference.numel() else 0.0
    floor = max(expected.reference_rms_err, 0.25 * roundoff(actual.dtype) * expected.rms, 1e-300)
    tolerance = _KERNELBENCH_TOLERANCE.get(str(actual.dtype).removeprefix("torch."), 1e-4)
    agrees = torch.allclose(actual, expected.reference, rtol=tolerance, atol=tolerance)
    return Errors(float(difference.max()) if difference.numel() else 0.0, rms_err / floor, agrees)


def _accepted(actual: torch.Tensor, expected: Expected) -> torch.Tensor:
    import torch

    if not actual.is_floating_point():
        return (actual == expected.low) | (actual == expected.high)
    inside = (actual >= expected.low) & (actual <= expected.high)
    if expected.nan is not None:
        inside = torch.where(expected.nan, torch.isnan(actual), inside)
    return inside


def _same_kind(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Both NaN, or equal (the same infinity)."""
    import torch

    return (torch.isnan(left) & torch.isnan(right)) | (left == right)
