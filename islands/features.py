"""Where a correct kernel stands among kernels: coordinates on axes that a kernel engineer would name.

Each axis is a number cut into bins by its edges. What the judge measured (Evaluation.features) is preferred; where it
measured nothing, `threads`, `vector` and `size` are estimated from the source text.

axis              unit      speaks of       read from
backend                     all             cpp 0, cuda 1, triton 2
threads           threads   cpp             features["threads"]; else 2 where the source starts threads, else 1
vector            bit       cpp             features["vector_bits"], the widest registers in the binary; else what
                                            intrinsics or flags in the source ask for
binary            byte      all             features["binary_bytes"]
size              line      all             lines of code of the source
memory            byte      all             features["peak_extra_bytes"], else peak_mem_bytes
registers         register  cuda, triton    features["registers"]: the most of any kernel, per thread
shared            byte      cuda, triton    features["shared_bytes"]: the most of any kernel, per block
launches          launch    cuda, triton    features["launches_per_call"], else features["kernels"] as compiled
memory_roofline   share     cuda, triton    features["dram_percent"] where counters were read; else the problem's
                                            compulsory bytes per second over the device's bandwidth
compute_roofline  share     cuda, triton    features["sm_percent"] where counters were read; else the problem's
                                            arithmetic per second over the device's rate

A coordinate of -1 says that the axis does not speak of the candidate's backend, or that nothing is known. So one map
holds several backends: with all axes configured each backend fills a map of its own, on the axes that mean something
to it. Without counters both rooflines follow from the kernel's time alone: they then keep slower forms of a kernel,
from which a faster one may yet come, and tell nothing of why they are slow.
"""

from __future__ import annotations

import functools
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from islands.candidate import Evaluated
from problems.roofline import find_peaks

Coordinates = tuple[int, ...]
"""One bin number per axis, in the order of the configured axes; UNKNOWN where an axis has nothing to say."""

UNKNOWN = -1

BACKENDS = ("cpp", "cuda", "triton")
"""In the order of their bins; a new one comes last, so that the others keep theirs."""
CPU = ("cpp",)
GPU = ("cuda", "triton")

DEFAULT_AXES = (
    *("backend", "vector", "threads", "binary", "registers", "shared", "launches"),
    *("memory_roofline", "compute_roofline", "memory"),
)
"""A C++ kernel is told apart by the first four and the last, a CUDA or Triton kernel by all but vector and threads."""

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

HALF_OCTAVES = tuple(math.ceil(2.0 ** (20 + step / 2)) for step in range(21))
"""1 MiB to 1 GiB, each edge 1.41 times the one before. What the kernels of one problem take lies close together: edges
at 1, 16 and 128 MiB told the kernels of 4 of 22 recorded searches in C++ apart, these those of 14."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the map; a value v falls into bin `number of edges <= v`."""

    edges: tuple[float, ...]
    read: Callable[[Evaluated], float | None]
    """The value; None where it is not known."""
    backends: tuple[str, ...] = BACKENDS
    """Those of whose candidates it speaks; the others' coordinate is UNKNOWN."""
    own_edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By backend, in place of `edges`."""


def _measured(evaluated: Evaluated, name: str) -> float | None:
    value = evaluated.evaluation.features.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _feature(*names: str) -> Callable[[Evaluated], float | None]:
    """Reads the first of these features that was measured."""

    def read(evaluated: Evaluated) -> float | None:
        values = (_measured(evaluated, name) for name in names)
        return next((value for value in values if value is not None), None)

    return read


def _backend(evaluated: Evaluated) -> float | None:
    backend = evaluated.candidate.backend
    return float(BACKENDS.index(backend)) if backend in BACKENDS else None


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


def _memory(evaluated: Evaluated) -> float | None:
    measured = _measured(evaluated, "peak_extra_bytes")
    held = evaluated.evaluation.peak_mem_bytes
    return (None if held is None else float(held)) if measured is None else measured


@functools.lru_cache(maxsize=64)
def _peaks(device_name: str) -> tuple[float, float] | None:
    """Bandwidth [B/s] and plain fp32 rate [FLOP/s] of a device; None for one that is not in problems.roofline."""
    peaks = find_peaks(device_name)
    return (peaks.bytes_per_s, peaks.flop_per_s["fp32"]) if peaks else None


def _memory_roofline(evaluated: Evaluated) -> float | None:
    counted, rate = _measured(evaluated, "dram_percent"), _measured(evaluated, "achieved_bytes_per_s")
    if counted is not None:
        return counted / 100
    peaks = _peaks(evaluated.evaluation.device_name)
    return rate / peaks[0] if rate is not None and peaks else None


def _compute_roofline(evaluated: Evaluated) -> float | None:
    """Arithmetic over the fp32 rate, but at most `roofline_fraction`, which knows the rate of the run's precision."""
    counted, rate = _measured(evaluated, "sm_percent"), _measured(evaluated, "achieved_flop_per_s")
    if counted is not None:
        return counted / 100
    peaks, most = _peaks(evaluated.evaluation.device_name), _measured(evaluated, "roofline_fraction")
    return min(rate / peaks[1], math.inf if most is None else most) if rate is not None and peaks else None


AXES: Mapping[str, Axis] = {
    "backend": Axis((1, 2), _backend),
    "threads": Axis((2, 4, 16), _threads, CPU),
    "vector": Axis((128, 256, 512), _vector, CPU),
    "size": Axis((50, 80, 120, 200), _size, own_edges={"triton": (30, 50, 80, 120)}),
    # A library's sections are rounded up to pages of 4 KiB: small C++ kernels make files of 15 to 25 kB.
    "binary": Axis((16 << 10, 20 << 10, 24 << 10, 32 << 10, 64 << 10), _feature("binary_bytes"), CPU),
    "memory": Axis(HALF_OCTAVES, _memory),
    "registers": Axis((33, 65, 129), _feature("registers"), GPU),  # 65,536 per SM: 2,048, 1,024, 512 threads
    "shared": Axis((1, 16 << 10, 64 << 10), _feature("shared_bytes"), GPU),
    "launches": Axis((2, 4), _feature("launches_per_call", "kernels"), GPU),
    "memory_roofline": Axis((0.25, 0.6), _memory_roofline, GPU),
    "compute_roofline": Axis((0.25, 0.6), _compute_roofline, GPU),
}


def check_axes(axes: tuple[str, ...], edges: Mapping[str, tuple[float, ...]]) -> None:
    """ValueError for an axis or a backend that does not exist, an axis named twice, or edges that do not ascend."""
    for name in (*axes, *(key.partition("@")[0] for key in edges)):
        if name not in AXES:
            raise ValueError(f"unknown axis {name!r}, expected some of {', '.join(AXES)}")
    if len(set(axes)) < len(axes):
        raise ValueError(f"axes must differ, found {', '.join(axes)}")
    for key, values in edges.items():
        name, at, backend = key.partition("@")
        if at and backend not in AXES[name].backends:
            raise ValueError(f"edges {key!r}: axis {name} speaks of {', '.join(AXES[name].backends)}, not {backend!r}")
        if list(values) != sorted(set(values)):
            raise ValueError(f"edges of axis {key} must ascend, found {values}")


def coordinates(evaluated: Evaluated, axes: tuple[str, ...], edges: Mapping[str, tuple[float, ...]]) -> Coordinates:
    """The cell of `evaluated`, `()` for no axes.

    `edges` replaces an axis's own: `{"memory": (...)}` those of all backends, `{"memory@cuda": (...)}` one's.
    """
    return tuple([_bin(evaluated, name, edges) for name in axes])


def _bin(evaluated: Evaluated, name: str, edges: Mapping[str, tuple[float, ...]]) -> int:
    axis, backend = AXES[name], evaluated.candidate.backend
    if backend not in axis.backends and name != "backend":
        return UNKNOWN
    value = axis.read(evaluated)
    if value is None:
        return UNKNOWN
    own = axis.own_edges.get(backend, axis.edges)
    return bisect_right(edges.get(f"{name}@{backend}", edges.get(name, own)), value)
