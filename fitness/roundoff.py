"""Units of roundoff, exponents, slices: what bounds are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
TF32_ROUNDOFF = 2.0**-11
EXPONENTS = 1100
"""Half the range of binary exponents of fp64, with room."""
_PART, _GPU_PART = 1 << 14, 1 << 26
"""Elements handled at once: on the CPU below torch's grain of 32,768, so that no thread pool has to be woken."""


def rounding_of(dtype: torch.dtype, precision: str) -> float:
    """u, or under the policy tf32 that of the factors of a product."""
    return TF32_ROUNDOFF if precision == "tf32" and dtype.itemsize == 4 else roundoff(dtype)


def roundoff(dtype: torch.dtype) -> float:
    """Unit roundoff u: half the distance from 1 to the next number."""
    return _ROUNDOFF[name_of(dtype)]


def name_of(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def end_of_range(dtype: torch.dtype) -> float:
    """The least number that rounds to infinity."""
    import torch

    info = torch.finfo(dtype)
    return info.max / (2 - info.eps) * (2 - info.eps / 2)


def finite(exact: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The exact values with 0 where the output's type cannot hold them, and where it can: what is less than half an ulp
    above its largest number rounds to that."""
    import torch

    is_finite = exact.abs() < end_of_range(dtype)
    return torch.where(is_finite, exact, 0.0), is_finite


def power_of_two(exact: torch.Tensor) -> torch.Tensor:
    """The binary exponent of each element as an index into a table of 2 EXPONENTS + 1."""
    import torch

    return torch.frexp(exact).exponent.long().clamp_(-EXPONENTS, EXPONENTS).add_(EXPONENTS)


def parts(flat: torch.Tensor) -> list[slice]:
    """Slices that stay in the cache: fresh pages for large temporaries would cost more than the arithmetic. On a GPU,
    slices that leave room for temporaries."""
    count, size = flat.numel(), _GPU_PART if flat.is_cuda else _PART
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def norm(flat: torch.Tensor, order: float = 2.0) -> torch.Tensor:
    """In one pass; 0 of nothing."""
    import torch

    return torch.linalg.vector_norm(flat, order) if flat.numel() else flat.new_zeros(())


def square(norm: torch.Tensor) -> float:
    """Infinity, where Python's own power would raise."""
    value = float(norm)
    return value * value


def same_kind(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Both NaN, or equal (the same infinity)."""
    import torch

    return (torch.isnan(left) & torch.isnan(right)) | (left == right)
