"""What judging a problem on the CPU takes of the machine's memory."""

from __future__ import annotations

from collections.abc import Sequence

from fitness import wire
from fitness.draws import SURPRISES, VERIFICATION
from fitness.evaluation import Job, JudgeError
from fitness.questions import widened
from fitness.quota import memory_left_bytes
from fitness.wire import Layout
from problems.inputs import FAMILIES

FEWEST_DRAWS = 4
"""Of the timed rounds, however large they are."""


def least_bytes(inputs: Sequence[Layout], outputs: Sequence[Layout], weights: Sequence[Layout]) -> int:
    """What all that is kept at once takes at least: draws with their bounds, the oracle's copies, two runners.

    The problem's own intermediate results come to it, and the judge's, half as much again.
    """
    given, narrow, state = (wire.offsets(layouts)[1] for layouts in (inputs, outputs, weights))
    wide = wire.offsets([widened(layout) for layout in outputs])[1]
    families = len(FAMILIES) if any("float" in layout.dtype for layout in inputs) else 1
    checked = len(VERIFICATION) if families > 1 else VERIFICATION.count("own")
    others = SURPRISES * max(0, families - 2)
    draws = (checked + FEWEST_DRAWS + others) * (given + 2 * narrow) + checked * (narrow + wide)
    oracle = 3 * given + 2 * (narrow + wide) + 5 * state
    runners = 2 * (2 * given + narrow + state)
    return draws + oracle + runners


def check(job: Job, inputs: Sequence[Layout], outputs: Sequence[Layout], weights: Sequence[Layout]) -> None:
    """JudgeError when the machine surely has too little memory for the problem."""
    needed, left = least_bytes(inputs, outputs, weights), memory_left_bytes()
    if needed > left:
        raise JudgeError(
            f"problem {job.problem} needs {needed / 2**30:.1f} GiB of memory or more on the CPU, of which "
            f"{left / 2**30:.1f} GiB are left; take smaller sizes, end other programs, or judge it on a GPU"
        )
