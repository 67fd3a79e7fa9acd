"""A move: one legal change of a kernel, ready to be made."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mutators.cpp.tree import Edit, apply_edits, parse
from mutators.cpp.vector_math import definitions
from mutators.proposal import Refusal
from mutators.source import KernelSource

FAST_MATH = ("-ffast-math", "-Ofast")


@dataclass(frozen=True, slots=True)
class Move:
    """A change of the C++ text and the flags; its legality was shown when it was found."""

    kind: str
    """`omp_parallel`, `simd`, `tile`, ..."""
    site: str
    """Where: function and loop, such as `softmax_rows/r`; for flags, the flag."""
    why: str
    """In plain words, what it does and what for."""
    edits: tuple[Edit, ...] = ()
    add_flags: tuple[str, ...] = ()
    drop_flags: tuple[str, ...] = ()
    tunables: tuple[tuple[str, str, str], ...] = ()
    """(name, value, choices) of constants that the edits use."""
    includes: tuple[str, ...] = ()
    vector_math: frozenset[str] = frozenset()
    """Functions of vector_math.py that the edits call."""
    label: str = ""
    """`reassociation` or `rounding` where last bits of results may change; empty where they cannot."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search for one kind of move gave: moves, and why other places were refused."""

    moves: tuple[Move, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()
    """(site, reason)"""


def apply_moves(kernel: KernelSource, moves: tuple[Move, ...]) -> KernelSource | Refusal:
    """The kernel with all the moves made (all found in this very kernel, edits disjoint), or why it cannot be."""
    cpp = apply_edits(kernel.cpp, tuple(edit for move in moves for edit in move.edits))
    names = frozenset().union(*(move.vector_math for move in moves))
    constants = dict.fromkeys(constant for move in moves for constant in move.tunables)
    lines = "".join(f"constexpr int {name} = {value};  // tune: {choices}\n" for name, value, choices in constants)
    cpp = _with_includes(cpp, tuple(dict.fromkeys(name for move in moves for name in move.includes)))
    if parse(cpp).has_error and not parse(kernel.cpp).has_error:
        return Refusal("the changed C++ no longer parses")
    cpp = _after_includes(cpp, lines + (definitions(set(names), cpp) if names else ""))
    changed = kernel.with_cpp(cpp) if cpp != kernel.cpp else kernel
    if isinstance(changed, Refusal):
        return changed
    flags = changed_flags(kernel.flags, moves)
    return changed if flags == kernel.flags else changed.with_flags(flags)


def changed_flags(flags: tuple[str, ...], moves: tuple[Move, ...]) -> tuple[str, ...]:
    """The flags after the moves: dropped ones gone, new ones at the end, an -O level replaced in place."""
    for move in moves:
        flags = tuple(flag for flag in flags if flag not in move.drop_flags)
        for flag in move.add_flags:
            if flag.startswith("-O") and any(old.startswith("-O") for old in flags):
                flags = tuple(flag if old.startswith("-O") else old for old in flags)
            elif flag not in flags:
                flags = (*flags, flag)
    return flags


def disjoint(moves: tuple[Move, ...]) -> tuple[Move, ...]:
    """A greedy choice of moves, in the given order, whose edits do not touch each other.

    Moves of one kind that name the same new constant share it: one tunable for all the places.
    """
    chosen: list[Move] = []
    taken: list[tuple[int, int]] = []
    for move in moves:
        spans = [(edit.start, edit.end) for edit in move.edits]
        if any(a <= d and c <= b for a, b in spans for c, d in taken):
            continue
        chosen.append(move)
        taken += spans
    return tuple(chosen)


def fresh_name(kernel: KernelSource, stem: str) -> str:
    """A name for a new constant or variable that the text does not use: STEM, STEM_2, ..."""
    number, name = 1, stem
    while re.search(rf"\b{name}\b", kernel.cpp):
        number += 1
        name = f"{stem}_{number}"
    return name


def _with_includes(cpp: str, names: tuple[str, ...]) -> str:
    missing = [name for name in names if f"#include <{name}>" not in cpp]
    lines = "".join(f"#include <{name}>\n" for name in missing)
    match = re.search(r"^#include", cpp, re.MULTILINE)
    place = match.start() if match else len(cpp) - len(cpp.lstrip("\n"))
    return cpp[:place] + lines + cpp[place:]


def _after_includes(cpp: str, lines: str) -> str:
    """The text with lines put behind its last top-level #include."""
    if not lines:
        return cpp
    matches = list(re.finditer(r"^#include[^\n]*\n", cpp, re.MULTILINE))
    place = matches[-1].end() if matches else len(cpp) - len(cpp.lstrip("\n"))
    gap = "" if cpp[place : place + 1] == "\n" else "\n"
    return cpp[:place] + "\n" + lines + gap + cpp[place:]
