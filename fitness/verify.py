"""Is an output right? Elementwise bounds around an fp64 oracle, wide enough for honest rounding only.

For one output tensor with fp64 result y and the reference's own fp32 result r, an element a is accepted when

    |a - y| <= max(4 E(y), c u S(y)),    c = min(max(4 sqrt(K), K / 4), C)

- E(y): the largest |r - y| among the elements whose |y| lies within a factor of two or so (same or neighbouring
  power of two): the reference's own error at that magnitude. Judging an element by its own luck would be unfair.
- u: unit roundoff of the output's type. K: the longest sum that the problem can contain. sqrt(K) is the
  growth of rounding error in a sum of K terms with random signs (Higham and Mary, "A New Approach to Probabilistic
  Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019); 4 is our margin. A plain loop over equal terms, as
  sparse inputs give, rounds in one direction: hence K / 4, half of the worst case K u / 2. The cap C keeps c u below
  1e-4 in fp32, KernelBench's own tolerance, and below what TF32 arithmetic gives (u = 2^-11); in fp16 and bf16, where
  sums are kept in fp32 and only results are rounded, near KernelBench's 1e-2. Under the policy tf32, c u is 12 * 2^-11.
- S(y) = max(|y|, rms(y)): cancellation may leave an absolute error of the size of the terms.

Where the reference errs by more than c u S(y) on any element, something in the problem amplifies rounding (a long
recurrence, an argmax between near equals), mostly on a few elements, and those of the candidate may be others. The
bounds then grow to min(16, c) D of the element itself, D being the rms change of y over 8 computations in fp64 with
every input and weight moved by one rounding, up or down at random. (An LSTM-like recurrence over 64 steps on wide
inputs: honest errors were at most 5.2 D in 80 draws, but 14 times the reference's own E.)

Elements where the reference itself is unusable (off by 1% of S, in bf16 by 16 u, or not finite where the exact result
is) are left out; where more than one in a thousand is, the whole draw is unusable for that problem. NaN and infinity
must match; where the bounds reach beyond what the output's type can hold, infinity lies within them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitness.roundoff import (
    EXPONENTS,
    TF32_ROUNDOFF,
    end_of_range,
    finite,
    name_of,
    norm,
    parts,
    power_of_two,
    rounding_of,
    roundoff,
    same_kind,
    square,
)

if TYPE_CHECKING:
    import torch

_MARGIN = 4.0
_CAPS = {"float32": 1600.0, "float64": 1600.0, "float16": 20.0, "bfloat16": 4.0}
_TF32_MARGIN = 12.0
"""Honest TF32 products of depth 128 to 2048 were seen up to 5.9 * 2^-11 * S away, on wide exponents; bf16 ones lie
eight times as far."""
_UNUSABLE_SHARE = 1e-3
"""Attention on edge values shows why so small: scores near 1e7 turn a rounding into a large factor, the reference goes
astray on 1 to 2% of the elements, and on the rest an honest kernel may go astray where the reference does not."""
_SENSITIVITY_MARGIN = 16.0
_GPU_LANES = 1024


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
    worst: torch.Tensor | None
    """E by binary exponent (fp64, 2 EXPONENTS + 1 entries); None for integer outputs."""
    factor: float
    """c u."""
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


def longest_sum(shapes: Sequence[tuple[int, ...]], output_shapes: Sequence[tuple[int, ...]]) -> int:
    """How many terms a sum over inputs or weights can have, from their shapes alone.

    All dimensions of a tensor but one (normalisation over several, a filter's elements per output channel), or all
    inputs per output element.
    """
    numels = [math.prod(shape) for shape in shapes]
    outputs = max(1, min((math.prod(shape) for shape in output_shapes), default=1))
    longest = max((math.prod(sorted(shape)[1 if len(shape) > 1 else 0 :]) for shape in shapes), default=1)
    return max(2, longest, max(numels, default=1) // outputs)


def expect(
    reference: torch.Tensor,
    exact: torch.Tensor,
    terms: int,
    *,
    precision: str = "fp32",
    keep: bool = False,
    sensitivity: Callable[[], torch.Tensor] | None = None,
) -> Expected:
    """The bounds for one output; `keep` retains both arguments for `errors`, the caller must not change them then.

    `sensitivity` gives D (fp64, the output's shape) and is asked only where the reference strays.
    """
    import torch

    if not reference.is_floating_point():
        kept = reference if keep else None
        return Expected(reference.clone(), exact.to(reference.dtype), None, 0.0, 0.0, 1.0, None, 0.0, kept, kept)
    flat, truth = reference.reshape(-1), exact.reshape(-1)
    survey = _survey(flat, truth)
    factor = _factor(reference.dtype, terms, precision)
    low, high = torch.empty_like(flat), torch.empty_like(flat)
    nan = torch.zeros_like(flat, dtype=torch.bool)
    rounding_rules = survey.is_within(factor)
    moved = None
    if sensitivity is not None and not (rounding_rules and survey.is_plain) and _strays(flat, truth, survey, factor):
        moved = sensitivity().reshape(-1)
    margin = min(_SENSITIVITY_MARGIN, factor / rounding_of(reference.dtype, precision))
    loose = 0
    for part in parts(flat):
        pieces = low[part], high[part], nan[part]
        extra = None if moved is None else moved[part] * margin
        loose += _bound(flat[part], truth[part], pieces, survey, factor, extra, rounding_rules=rounding_rules)
    count = max(1, flat.numel())
    return Expected(
        low.view(reference.shape),
        high.view(reference.shape),
        nan.view(reference.shape) if bool(nan.any()) else None,
        loose / count,
        math.sqrt(survey.error_squares / count),
        survey.rms,
        survey.worst,
        factor,
        exact if keep else None,
        reference if keep else None,
    )


def _factor(dtype: torch.dtype, terms: int, precision: str) -> float:
    unit = rounding_of(dtype, precision)
    if unit == TF32_ROUNDOFF and dtype.itemsize == 4:
        return _TF32_MARGIN * unit
    return min(max(_MARGIN * math.sqrt(terms), terms / 4), _CAPS[name_of(dtype)]) * unit


def expect_all(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
    terms: int,
    sensitivities: Callable[[], Sequence[torch.Tensor]] | None,
    *,
    precision: str,
    keep: bool,
) -> list[Expected]:
    """The bounds for all outputs of a call, from (reference, exact) of each; `sensitivities` is asked once at most."""
    if sensitivities is None:
        return [expect(r, y, terms, precision=precision, keep=keep) for r, y in pairs]
    moved = functools.cache(sensitivities)
    return [
        expect(r, y, terms, precision=precision, keep=keep, sensitivity=lambda index=index: moved()[index])  # type: ignore[misc]
        for index, (r, y) in enumerate(pairs)
    ]


@dataclass(frozen=True, slots=True)
class _Survey:
    """What all elements of an output together say."""

    rms: float
    worst: torch.Tensor
    """The largest usable error by the power of two of |y|."""
    error_squares: float
    """Sum over the usable errors."""
    is_plain: bool
    """Every exact result is finite in the output's type and every element of the reference usable: large outputs mostly
    are, and need a third of the passes then."""

    def is_within(self, factor: float) -> bool:
        """Whether 4 E(y) <= c u S(y) for every y there may be."""
        import torch

        exponents = torch.arange(-EXPONENTS, EXPONENTS + 1, dtype=torch.float64, device=self.worst.device)
        least = torch.where(exponents == 0, 0.0, (exponents - 1).exp2())  # of |y|; 0 has the exponent 0 too
        return bool((4 * self.worst <= factor * least.clamp_min(self.rms)).all())


def _survey(reference: torch.Tensor, exact: torch.Tensor) -> _Survey:
    import torch

    is_plain, squares = True, 0.0
    for part in parts(exact):
        is_plain = is_plain and float(norm(exact[part], math.inf)) < end_of_range(reference.dtype)
        squares += square(norm(exact[part] if is_plain else finite(exact[part], reference.dtype)[0]))
    rms = math.sqrt(squares / max(1, exact.numel()))
    lanes = _GPU_LANES if exact.is_cuda else 1
    largest = torch.zeros((2 * EXPONENTS + 1, lanes), dtype=torch.int64, device=exact.device)
    are_finite, error_squares = is_plain, 0.0
    for part in parts(exact):
        y, is_finite = (exact[part], None) if are_finite else finite(exact[part], reference.dtype)
        error = (reference[part] - y).abs_()
        if is_finite is not None or not float(norm(error, math.inf)) <= _usable_share(reference.dtype) * rms:
            is_usable = error <= _usable_error(y, rms, reference.dtype)
            if is_finite is not None:
                is_usable &= is_finite
            is_plain = is_plain and bool(is_usable.all())
            error = torch.where(is_usable, error, 0.0)
        _raise(largest, power_of_two(y), error)
        error_squares += square(norm(error))
    worst = largest.amax(1).view(torch.float64)
    neighbours = torch.nn.functional.max_pool1d(worst[None, None], 3, stride=1, padding=1)[0, 0]
    return _Survey(rms, neighbours, error_squares, is_plain)


def _strays(reference: torch.Tensor, exact: torch.Tensor, survey: _Survey, factor: float) -> bool:
    """Whether the reference errs by more than c u S(y) anywhere, but not on so many elements that it is no measure."""
    import torch

    dtype, astray, unusable = reference.dtype, 0, 0
    for part in parts(exact):
        y, is_finite = finite(exact[part], dtype)
        share = ((reference[part] - y).abs_() - torch.finfo(dtype).tiny) / y.abs().clamp_min_(survey.rms)
        astray += int((is_finite & ~(share <= factor)).sum())
        unusable += int((is_finite & ~(share <= _usable_share(dtype))).sum())
    return astray > 0 and unusable <= _UNUSABLE_SHARE * exact.numel()


def _raise(largest: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    """largest[rows[i], any column] = max(itself, values[i]), for values of at least 0.

    Their bits have the same order as integers, for which a GPU has an atomic maximum. Neighbours go to different
    columns: most errors have one of a few exponents, and threads that meet in one place wait for each other.
    """
    import torch

    bits, lanes = values.view(torch.int64), largest.shape[1]
    if lanes == 1:
        largest.view(-1).scatter_reduce_(0, rows, bits, "amax")
        return
    whole = bits.numel() // lanes * lanes
    for part, width in ((slice(0, whole), lanes), (slice(whole, None), bits.numel() - whole)):
        if bits[part].numel():
            largest.scatter_reduce_(0, rows[part].view(-1, width), bits[part].view(-1, width), "amax")


def _bound(
    reference: torch.Tensor,
    exact: torch.Tensor,
    into: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    survey: _Survey,
    factor: float,
    extra: torch.Tensor | None,
    *,
    rounding_rules: bool,
) -> int:
    """Writes low, high and where NaN is right; returns how many elements are left out. `extra` is what the problem's
    own sensitivity allows."""
    import torch

    low, high, nan = into
    dtype = reference.dtype

    def around(values: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> None:
        off = values.abs().clamp_min_(survey.rms).mul_(factor)
        if not rounding_rules:
            off = torch.maximum(off, 4 * survey.worst[power_of_two(values)])
        off += torch.finfo(dtype).tiny
        torch.sub(values, off, out=low)  # rounded to nearest in the output's type: half an ulp is far inside
        torch.add(values, off, out=high)

    if survey.is_plain and extra is None:
        around(exact, low, high)
        return 0
    y, is_finite = finite(exact, dtype)
    around(y, low, high)
    unusable = is_finite & ~((reference.double() - y).abs_() <= _usable_error(y, survey.rms, dtype))
    if extra is not None:
        low.copy_(torch.minimum(low.double(), y - extra))
        high.copy_(torch.maximum(high.double(), y + extra))
        unusable |= is_finite & ~torch.isfinite(extra)
    if bool(is_finite.all()) and not bool(unusable.any()):
        return 0
    narrow, overflows, infinite = exact.to(dtype), ~is_finite & torch.isfinite(exact), torch.isinf(exact)
    beyond = torch.empty_like(narrow[overflows]), torch.empty_like(narrow[overflows])
    around(exact[overflows], *beyond)
    for bound, values in zip((low, high), beyond, strict=True):
        bound[overflows], bound[infinite] = values, narrow[infinite]
    loose = unusable | (~is_finite & ~same_kind(reference, narrow))
    low.masked_fill_(loose, -math.inf)
    high.masked_fill_(loose, math.inf)
    nan.copy_(torch.isnan(narrow) & ~loose)
    return int(loose.sum())


def _usable_error(exact: torch.Tensor, rms: float, dtype: torch.dtype) -> torch.Tensor:
    import torch

    return exact.abs().clamp_min_(rms).mul_(_usable_share(dtype)).add_(torch.finfo(dtype).tiny)


def _usable_share(dtype: torch.dtype) -> float:
    """How large an error of the reference may be, as a share of S(y)."""
    return max(0.01, 16 * roundoff(dtype))


def is_right(actual: torch.Tensor, expected: Expected) -> bool:
    """Whether every element is acceptable; `actual` has the expected shape and dtype. An unusable draw counts too: the
    elements that are not left out still tell garbage from a result."""
    flat = actual.reshape(-1)
    return all(bool(_accepted(flat[part], expected, part).all()) for part in parts(flat))


def stretch_is_right(values: torch.Tensor, expected: Expected, start: int) -> bool:
    """`is_right` for the elements from `start` on, which may lie on another device."""
    part = slice(start, start + values.numel())
    return bool(_accepted(values.to(expected.low.device), expected, part).all())


def complaint(actual: torch.Tensor, expected: Expected) -> str:
    """Where and by how much an output is wrong, for a person."""
    import torch

    flat, count, worst, distance = actual.reshape(-1), 0, 0, -1.0
    low, high = expected.low.reshape(-1), expected.high.reshape(-1)
    for part in parts(flat):
        wrong = ~_accepted(flat[part], expected, part)
        count += int(wrong.sum())
        off = (flat[part].double() - (low[part].double() + high[part].double()) / 2).abs().nan_to_num(nan=math.inf)
        off = torch.where(wrong, off, -1.0)
        if float(off.max()) > distance:
            distance, worst = float(off.max()), part.start + int(off.argmax())
    place = [int(index) for index in torch.unravel_index(torch.tensor(worst), actual.shape)] if actual.dim() else []
    got, least, most = (float(t[worst]) for t in (flat, low, high))
    wanted = f"{least:.8g} to {most:.8g}" if actual.is_floating_point() else f"{least:.0f}"
    share = 100 * count / max(1, actual.numel())
    return (
        f"{count} of {actual.numel()} elements ({share:.3g}%) are wrong; "
        f"worst at {place}: got {got:.8g}, expected {wanted}"
    )


def errors(actual: torch.Tensor, expected: Expected) -> Errors:
    """How an accepted output compares with the oracle; needs an Expected made with `keep=True`."""
    import torch

    assert expected.exact is not None
    if not actual.is_floating_point():
        return Errors(0.0, 1.0)
    flat, exact = actual.reshape(-1), expected.exact.reshape(-1)
    largest, squares, count = 0.0, 0.0, 0
    for part in parts(flat):
        difference = flat[part] - exact[part]
        most = float(norm(difference, math.inf))
        if not math.isfinite(most):
            difference = difference[torch.isfinite(difference)]
            most = float(norm(difference, math.inf))
        largest, count = max(largest, most), count + difference.numel()
        squares += square(norm(difference))
    rms_err = math.sqrt(squares / max(1, count))
    floor = max(expected.reference_rms_err, 0.25 * roundoff(actual.dtype) * expected.rms, 1e-300)
    return Errors(largest, rms_err / floor)


def _accepted(actual: torch.Tensor, expected: Expected, part: slice) -> torch.Tensor:
    """Elementwise, for the flat elements `part` of an output."""
    import torch

    low, high = expected.low.reshape(-1)[part], expected.high.reshape(-1)[part]
    if not actual.is_floating_point():
        return (actual == low) | (actual == high)
    inside = (actual >= low) & (actual <= high)
    if expected.nan is not None:
        inside = torch.where(expected.nan.reshape(-1)[part], torch.isnan(actual), inside)
    return inside
