"""Moves on the compiler's flags."""

from __future__ import annotations

from mutators.cpp.moves import FAST_MATH, Found, Move
from mutators.source import KernelSource

ADD = {
    "-O3": "let the compiler vectorise and unroll",
    "-march=native": "use every instruction of this machine's processor",
    "-funroll-loops": "unroll loops whose length is known when they start",
    "-fno-math-errno": "let sqrt and its like become instructions: nobody reads errno",
    "-fno-trapping-math": "let the compiler compute both sides of a choice: no floating-point traps are set",
    "-mprefer-vector-width=512": "use the widest vectors where the processor has them",
    "-mprefer-vector-width=256": "use 256-bit vectors: wider ones may lower the clock",
    "-fno-plt": "call library functions directly",
    "-ffp-contract=off": "round products before adding: shorter chains on some processors",
    "-fvect-cost-model=dynamic": "vectorise also where the compiler has doubts, with a check when the loop starts",
}
"""Flag -> what it is for. -ffp-contract=fast is gcc's default outside -std=c++NN and so not listed."""
TUNABLE_OFF = (*ADD, "-ffast-math")
GROUPS = (("-mprefer-vector-width=512", "-mprefer-vector-width=256"),)


def find_flags(kernel: KernelSource, allow_fast_math: bool = False) -> Found:
    """Each flag that is missing as a move that adds it, each known one present as a move that drops it."""
    if kernel.flag_part is None:
        return Found((), (("flags", "the file has no list of compiler flags"),))
    moves = []
    for flag, reason in ADD.items():
        if flag not in kernel.flags:
            rivals = tuple(rival for group in GROUPS if flag in group for rival in group if rival != flag)
            moves.append(Move("flag_add", flag, f"add {flag}: {reason}", add_flags=(flag,), drop_flags=rivals))
    if allow_fast_math and not set(kernel.flags) & set(FAST_MATH):
        why = "add -ffast-math: this run allows results that differ in rounding, infinities and NaN"
        moves.append(Move("flag_add", "-ffast-math", why, add_flags=("-ffast-math",), label="fast-math"))
    for flag in kernel.flags:
        if flag in TUNABLE_OFF and not flag.startswith("-O"):
            moves.append(Move("flag_drop", flag, f"drop {flag}: it may do harm here", drop_flags=(flag,)))
    return Found(tuple(moves))


def find_strong_flags(kernel: KernelSource) -> Found:
    """The set that nearly every numeric kernel wants, in one move."""
    wanted = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math")
    missing = tuple(flag for flag in wanted if flag not in kernel.flags)
    if kernel.flag_part is None or not missing:
        return Found((), (("flags", "all strong flags are set"),))
    return Found((Move("strong_flags", "flags", f"compile with {' '.join(missing)}", add_flags=missing),))
