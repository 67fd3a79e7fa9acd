"""Draw families: fresh inputs of a problem's own form from several distributions.

Run this where torch is and problems may be (child processes, the judge). An answer that is right on a
problem's own inputs only by accident of their distribution fails on at least one of the others.

| family | every floating element is |
|---|---|
| own | what get_inputs() returned: its caller seeds torch and runs it again |
| normal | standard normal: signed, where KernelBench's own inputs are all in [0, 1) |
| wide | +-2**u, u uniform in [-20, 20] in fp32, fp64 and bf16, in [-7, 4] in fp16 |
| sparse | 0 with probability 7/8, else Student's t with 2 degrees of freedom, clipped |
| edge | one of EDGES, each equally likely |
| spikes | standard normal, but for one in 2**17 (one at least), which is +-2**u, u uniform in [6, 12], in fp16 [2, 4] |

A sample of the elements tells the first five apart; nothing but a look at every element tells spikes from normal.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_PART = 1 << 26
"""Elements drawn at once: temporaries then cost little beside a tensor of several GiB."""

FAMILIES = ("own", "normal", "wide", "sparse", "edge", "spikes")

EDGES = (0.0, -0.0, 1.0, -1.0, "tiny", "-tiny", "eps", 0.5, "large", "-large")
"""Values of the edge family: `tiny` is the smallest normal number, `eps` the spacing at 1, and `large`
2**12 (2**4 in fp16), small enough that a product summed over thousands of terms stays finite."""


def draw(specimen: list[Any], family: str, seed: int) -> list[Any]:
    """New inputs of the same form as `specimen`, which get_inputs() returned.

    Strided floating tensors are drawn anew with their shape, dtype, device and strides (so also their
    non-contiguity); a tensor that occurs twice is one tensor again. Integer, boolean, complex and sparse
    tensors and everything else are kept as they are, also inside lists, tuples and dicts. The same
    (specimen form, family, seed) gives the same values on the same kind of device.

    `seed` may have any number of bits: it is hashed with the family and the tensor's position to the
    64 bits that torch.Generator takes (of which the CPU's generator uses 32). Raises ValueError for an
    unknown family.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown draw family {family!r}; known are {', '.join(FAMILIES)}")
    if family == "own":
        return list(specimen)
    drawn: dict[int, Any] = {}

    def redraw(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(redraw(entry) for entry in value)
        if type(value) is dict:
            return {key: redraw(entry) for key, entry in value.items()}
        if not _is_redrawable(value):
            return value
        if id(value) not in drawn:
            drawn[id(value)] = _redraw_tensor(value, family, tensor_seed(seed, family, len(drawn)))
        return drawn[id(value)]

    return [redraw(value) for value in specimen]


def tensor_seed(seed: int, family: str, position: int) -> int:
    """64 bits for torch.Generator.manual_seed from a seed of any size, a family and a position."""
    digest = hashlib.blake2b(f"{seed}:{family}:{position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest)


def _is_redrawable(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout == torch.strided


def _redraw_tensor(like: torch.Tensor, family: str, seed: int) -> torch.Tensor:
    """A tensor with the form of `like`: its elements are drawn over the memory that its strides span."""
    import torch

    if like.numel() == 0:
        return torch.empty_like(like)
    span = 1 + sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))
    drawn = torch.empty(span, dtype=like.dtype, device=like.device)
    fill_rows(drawn[None], family, seed)
    return drawn.as_strided(like.shape, like.stride())


def fill_rows(rows: torch.Tensor, family: str, seed: int) -> None:
    """Draws `rows` (count, elements per draw) anew, a draw a row: many small ones cost little more than one.

    `rows` is floating and may be a strided view; `family` is any but own.
    """
    import torch

    generator = torch.Generator(device=rows.device).manual_seed(seed)
    finfo, wide_enough = torch.finfo(rows.dtype), torch.float64 if rows.dtype == torch.float64 else torch.float32
    for block in rows.split(max(1, _PART // max(1, rows.shape[1]))):
        for part in block.split(_PART, dim=1):
            fresh = torch.empty(part.shape, dtype=wide_enough, device=rows.device)
            part.copy_(_FILLERS[family](fresh, finfo, generator))


def _fill_normal(flat: torch.Tensor, finfo: torch.finfo, generator: torch.Generator) -> torch.Tensor:
    return flat.normal_(generator=generator)


def _fill_wide(flat: torch.Tensor, finfo: torch.finfo, generator: torch.Generator) -> torch.Tensor:
    """Signs and exponents, narrower where the format's own range is: see the module's table."""
    low = -min(20, round(-math.log2(finfo.tiny) / 2))
    high = min(20, round(math.log2(finfo.max) / 4))
    flat.uniform_(low - high, high - low, generator=generator)
    return flat.abs().add_(low).exp2_().copysign_(flat)


def _fill_sparse(flat: torch.Tensor, finfo: torch.finfo, generator: torch.Generator) -> torch.Tensor:
    """Student's t with two degrees of freedom by its inverse, (2u - 1) / sqrt(2u(1 - u)).

    W. T. Shaw, Sampling Student's T distribution, J. Computational Finance 9(4), 2006. One uniform
    number serves twice: below 7/8 the element is 0, above it is stretched to [0, 1) for u.
    """
    limit = min(1e3, finfo.max / 256)
    uniform = flat.uniform_(generator=generator)
    kept = uniform >= 0.875
    uniform = uniform.sub_(0.875).mul_(8).clamp_(1e-7, 1 - 1e-7)
    tail = (2 * uniform - 1) / (2 * uniform * (1 - uniform)).sqrt_()
    return tail.clamp_(-limit, limit).mul_(kept)


def _fill_edge(flat: torch.Tensor, finfo: torch.finfo, generator: torch.Generator) -> torch.Tensor:
    import torch

    large = 2.0 ** min(12, round(math.log2(finfo.max) / 4))
    named = {"tiny": finfo.tiny, "-tiny": -finfo.tiny, "eps": finfo.eps, "large": large, "-large": -large}
    values = [named[edge] if isinstance(edge, str) else edge for edge in EDGES]
    table = torch.tensor(values, dtype=flat.dtype, device=flat.device)
    chosen = torch.randint(len(values), flat.shape, generator=generator, dtype=torch.int32, device=flat.device)
    return table[chosen]


def _fill_spikes(flat: torch.Tensor, finfo: torch.finfo, generator: torch.Generator) -> torch.Tensor:
    import torch

    high = min(12, round(math.log2(finfo.max) / 4))
    flat.normal_(generator=generator)
    count = max(1, flat.shape[1] >> 17)
    places = torch.randint(flat.shape[1], (flat.shape[0], count), generator=generator, device=flat.device)
    size = torch.empty(places.shape, dtype=flat.dtype, device=flat.device)
    size.uniform_(high / 2, high, generator=generator).exp2_()
    return flat.scatter_(1, places, size.copysign_(flat.gather(1, places)))


_FILLERS: dict[str, Callable[..., torch.Tensor]] = {
    "normal": _fill_normal,
    "wide": _fill_wide,
    "sparse": _fill_sparse,
    "edge": _fill_edge,
    "spikes": _fill_spikes,
}
