"""Where a correct kernel stands among kernels: coordinates on axes that a kernel engineer would name.

Each axis is a number cut into bins by its edges. What the judge measured (Evaluation.features) is preferred;
where it measured nothing, the number is estimated from the source text:

axis     unit     measured as                        otherwise
threads  threads  features["threads"]                2 where the source starts threads (OpenMP, std::thread, ...), else 1
vector   bit      features["vector_bits"]            widest intrinsics or -m flag named; 128 for -O3, -Ofast, simd; else 0
size     byte     features["binary_bytes"]           16,000 + 80 per line of code (our lean seeds with g++ -O2, within 30%)
memory   byte     features["peak_extra_bytes"],      0
                  else peak_mem_bytes
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from islands.candidate import Evaluated

Coordinates = tuple[int, ...]
"""One bin number per axis, in the order of the configured axes."""

PARALLEL = re.compile(r"#\s*pragma\s+omp\b[^\n]*\bparallel\b|\bstd::(?:jthread|thread|async)\b|\bparallel_for\b|\bpthread_create\b")

VECTOR_BITS = (
    (512, re.compile(r"\b_mm512_|\b__m512|-mavx512|\bvector_size\s*\(\s*64\s*\)")),
    (256, re.compile(r"\b_mm256_|\b__m256|-mavx\b|-mavx2|-march=native|\bvector_size\s*\(\s*32\s*\)")),
    (128, re.compile(r"\b_mm_|\b__m128|-O3|-Ofast|-ftree-vectorize|\bsimd\b|\bvector_size\s*\(\s*16\s*\)")),
)

CODE_LINE = re.compile(r"^\s*(?!//|\*|#(?!\s*(?:pragma|include|define|if|el|endif)))\S", re.MULTILINE)
"""A line that is neither blank nor only a comment, in Python or C++."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the map; a value v falls into bin `number of edges <= v`."""

    edges: tuple[float, ...]
    read: Callable[[Evaluated], float]


def _measured(evaluated: Evaluated, name: str) -> float | None:
    value = evaluated.evaluation.features.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _threads(evaluated: Evaluated) -> float:
    measured = _measured(evaluated, "threads")
    if measured is not None:
        return measured
    return 2.0 if PARALLEL.search(evaluated.candidate.source) else 1.0


def _vector(evaluated: Evaluated) -> float:
    measured = _measured(evaluated, "vector_bits")
    if measured is not None:
        return measured
    source = evaluated.candidate.source
    return float(next((bits for bits, pattern in VECTOR_BITS if pattern.search(source)), 0))


def _size(evaluated: Evaluated) -> float:
    measured = _measured(evaluated, "binary_bytes")
    if measured is not None:
        return measured
    return 16_000.0 + 80.0 * len(CODE_LINE.findall(evaluated.candidate.source))


def _memory(evaluated: Evaluated) -> float:
    measured = _measured(evaluated, "peak_extra_bytes")
    return float(evaluated.evaluation.peak_mem_bytes or 0) if measured is None else measured


AXES: Mapping[str, Axis] = {
    "threads": Axis((2,), _threads),
    "vector": Axis((128, 256, 512), _vector),
    "size": Axis((18_000, 22_000, 30_000), _size),
    "memory": Axis((64 << 10, 4 << 20, 64 << 20), _memory),
}


def coordinates(
    evaluated: Evaluated, axes: tuple[str, ...], edges: Mapping[str, tuple[float, ...]]
) -> Coordinates:
    """The cell of `evaluated`; `edges` replaces an axis's own edges where it names one. `()` for no axes."""
    return tuple(
        bisect_right(edges.get(name, AXES[name].edges), AXES[name].read(evaluated)) for name in axes
    )
