"""Every kind of move by name, and the recipes that combine them."""

from __future__ import annotations

from collections.abc import Callable

from mutators.cpp import accumulators, arithmetic, flags, nests, pragmas
from mutators.cpp.analysis import sites
from mutators.cpp.moves import Found, Move, apply_moves, disjoint
from mutators.cpp.tree import Edit
from mutators.proposal import Refusal
from mutators.source import KernelSource
from mutators.tunables import find_tunables

Finder = Callable[[KernelSource], Found]

FINDERS: dict[str, Finder] = {
    "omp_parallel": pragmas.find_parallel,
    "omp_parallel_dynamic": pragmas.find_parallel_dynamic,
    "omp_collapse": pragmas.find_collapse,
    "omp_schedule": pragmas.find_schedule,
    "omp_simd": pragmas.find_simd,
    "ivdep": pragmas.find_ivdep,
    "unroll": pragmas.find_unroll,
    "drop_pragma": pragmas.find_drop_pragma,
    "restrict": pragmas.find_restrict,
    "interchange": nests.find_interchange,
    "strip_mine": nests.find_strip,
    "tile": nests.find_tile,
    "fuse": nests.find_fusion,
    "split_reduction": accumulators.find_split,
    "block_accumulators": accumulators.find_blocked,
    "vector_math": arithmetic.find_vector_math,
    "float_functions": arithmetic.find_float_functions,
    "float_literals": arithmetic.find_float_literals,
    "power": arithmetic.find_power,
    "reciprocal": arithmetic.find_reciprocal,
    "strong_flags": flags.find_strong_flags,
}
"""`flags` takes an option and stands in `finders`."""

RECIPES: dict[str, tuple[str, ...]] = {
    "threads, lanes, vector math": (
        "strong_flags", "float_functions", "float_literals", "vector_math", "set_tunables", "omp_simd", "omp_parallel",
    ),
    "threads": ("strong_flags", "float_functions", "omp_parallel"),
    "blocked accumulators": ("strong_flags", "block_accumulators", "omp_simd", "omp_parallel"),
    "threads, partial sums": (
        "strong_flags", "float_functions", "float_literals", "vector_math", "split_reduction", "set_tunables",
        "omp_simd", "omp_parallel",
    ),
    "tiles": ("strong_flags", "tile", "set_tunables", "omp_simd", "omp_parallel"),
    "collapsed threads, lanes": (
        "strong_flags", "vector_math", "set_tunables", "restrict", "omp_simd", "omp_collapse", "omp_parallel",
    ),
    "flags": ("strong_flags",),
    "one thread, lanes": ("strong_flags", "float_functions", "vector_math", "set_tunables", "restrict", "omp_simd"),
    "fused passes": ("strong_flags", "fuse", "vector_math", "omp_simd", "omp_parallel"),
}  # fmt: skip
"""Name -> kinds, each made everywhere it is legal; the strongest for most kernels first."""


def finders(allow_fast_math: bool = False) -> dict[str, Finder]:
    """Every kind of single move."""
    return {**FINDERS, "flags": lambda kernel: flags.find_flags(kernel, allow_fast_math)}


def everywhere(kernel: KernelSource, kind: str) -> tuple[KernelSource, tuple[Move, ...]]:
    """The kernel with one kind of move made wherever it is legal, and the moves; unchanged where there is none."""
    found = _raised_tunables(kernel) if kind == "set_tunables" else FINDERS[kind](kernel)
    moves = disjoint(_worthwhile(kernel, kind, found.moves))
    if not moves:
        return kernel, ()
    changed = apply_moves(kernel, moves)
    return (kernel, ()) if isinstance(changed, Refusal) else (changed, moves)


def _worthwhile(kernel: KernelSource, kind: str, moves: tuple[Move, ...]) -> tuple[Move, ...]:
    """Threads cost microseconds to start: where a loop that nothing encloses can have them, no inner loop gets any."""
    if not kind.startswith("omp_parallel"):
        return moves
    outermost = {site.name for site in sites(kernel) if not site.enclosing}
    top = tuple(move for move in moves if move.site in outermost)
    return top or moves[:1]


def _raised_tunables(kernel: KernelSource) -> Found:
    """Tunables that stand at the first of their ordered choices, set to the one that is in the middle."""
    values = {}
    for tunable in find_tunables(kernel.cpp):
        if tunable.is_ordinal and tunable.value == tunable.choices[0]:
            values[tunable.name] = tunable.choices[len(tunable.choices) // 2]
    if not values:
        return Found()
    text = ", ".join(f"{name} = {value}" for name, value in values.items())
    edits = _value_edits(kernel.cpp, values)
    return Found((Move("set_tunables", ",".join(values), f"start from {text}", edits),))


def _value_edits(cpp: str, values: dict[str, str]) -> tuple[Edit, ...]:
    edits = []
    for tunable in find_tunables(cpp):
        if tunable.name in values:
            start = len(cpp[: tunable.start].encode())
            edits.append(Edit(start, start + len(tunable.value.encode()), values[tunable.name]))
    return tuple(edits)
