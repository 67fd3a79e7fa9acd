"""Where a correct kernel stands among kernels: coordinates on axes that a kernel engineer would name.

Each axis is a number cut into bins by its edges. What the judge measured (Evaluation.features) is preferred;
where it measured nothing, the number is estimated from the source text:

axis      unit      measured as                      otherwise
threads   threads   features["threads"]              2 where the source starts threads (as by OpenMP), else 1
vector    bit       features["vector_bits"]          what intrinsics or flags in the source ask for
size      line      lines of code, from the source
binary    byte      features["binary_bytes"]         0
memory    byte      features["peak_extra_bytes"],    0
                    else peak_mem_bytes
registers register  features["registers"]            0; the most of any GPU kernel, per thread
shared    byte      features["shared_bytes"]         0; the most of any GPU kernel, per block
launches  launch    features["launches_per_call"],   0
                    else features["kernels"]

`size` reads the source because a library's size says little: bundled seeds of 35 to 96 lines, with g++ -O2
or -O3, all make files of 15.0 to 15.7 kB (sections are rounded up to pages). `binary` is for large kernels.
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

PARALLEL = (
    re.compile(r"#\s*pragma\s+omp\b[^\n]*\bparallel\b"),
    re.compile(r"std::(?:jthread|thread|async)\b"),
    re.compile(r"parallel_for\b"),
    re.compile(r"pthread_create\b"),
)
"""One pattern each, because a pattern that begins with literal text is searched thirty times faster than an
alternation (10 against 390 microseconds on 4 KB)."""

VECTOR_BITS = (
    (512, ("_mm512_", "__m512", "-mavx512", "vector_size(64)")),
    (256, ("_mm256_", "__m256", "-mavx", "-march=native", "vector_size(32)")),
    (128, ("_mm_", "__m128", "-O3", "-Ofast", "-ftree-vectorize", "simd", "vector_size(16)")),
)
"""Widest first: what in a source asks for vectors of that many bits."""

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
    source = evaluated.candidate.source
    return 2.0 if any(pattern.search(source) for pattern in PARALLEL) else 1.0


def _vector(evaluated: Evaluated) -> float:
    measured = _measured(evaluated, "vector_bits")
    if measured is not None:
        return measured
    source = evaluated.candidate.source
    return float(next((bits for bits, words in VECTOR_BITS if any(word in source for word in words)), 0))


def _size(evaluated: Evaluated) -> float:
    return float(len(CODE_LINE.findall(evaluated.candidate.source)))


def _binary(evaluated: Evaluated) -> float:
    return _measured(evaluated, "binary_bytes") or 0.0


def _memory(evaluated: Evaluated) -> float:
    measured = _measured(evaluated, "peak_extra_bytes")
    return float(evaluated.evaluation.peak_mem_bytes or 0) if measured is None else measured


def _registers(evaluated: Evaluated) -> float:
    return _measured(evaluated, "registers") or 0.0


def _shared(evaluated: Evaluated) -> float:
    return _measured(evaluated, "shared_bytes") or 0.0


def _launches(evaluated: Evaluated) -> float:
    counted = _measured(evaluated, "launches_per_call")
    return (_measured(evaluated, "kernels") or 0.0) if counted is None else counted


AXES: Mapping[str, Axis] = {
    "threads": Axis((2,), _threads),
    "vector": Axis((128, 256, 512), _vector),
    "size": Axis((50, 80, 120, 200), _size),
    "binary": Axis((16_384, 32_768, 65_536), _binary),
    "memory": Axis((1 << 20, 16 << 20, 128 << 20), _memory),
    "registers": Axis((33, 65, 129), _registers),  # 65,536 per SM: above 32 no 2,048 threads fit, above 64 no 1,024
    "shared": Axis((1, 16 << 10, 64 << 10), _shared),
    "launches": Axis((2, 4), _launches),
}


def coordinates(evaluated: Evaluated, axes: tuple[str, ...], edges: Mapping[str, tuple[float, ...]]) -> Coordinates:
    """The cell of `evaluated`; `edges` replaces an axis's own edges where it names one. `()` for no axes."""
    return tuple(bisect_right(edges.get(name, AXES[name].edges), AXES[name].read(evaluated)) for name in axes)
