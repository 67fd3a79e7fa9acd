"""What a problem needs of a card's memory, and how many calls of a window it has room for."""

from __future__ import annotations

from fitness.evaluation import Job, JudgeError

SLOTS_SHARE = 0.6
"""Share of the free memory that all copies of a batch's inputs and outputs may take."""
WINDOW_MS = 12.0
"""A window holds calls for about this long, some fourteen times what it costs around them."""
MOST_CALLS = 1024
CAPACITY_BYTES, LONGEST_MS = 12 << 30, 250.0
"""Windows of faster candidates grow while their inputs take no more than this, and the reference no longer: where a
window cannot hold some 6 ms of the candidate's work, not all that it costs is taken off, and the candidate reads slower
than it is (fitness/rounds.py, MOST_TAKEN_OFF)."""
CONTEXTS_BYTES = 6 << 30
"""For the CUDA contexts and libraries of three processes, and for comparing outputs by parts."""


WEIGHTS_COPIES = 5
"""Of a model's weights beside the oracle's own: fp64 (twice their size), varied, the reference's, the candidate's."""


def check(job: Job, slot_bytes: int, output_bytes: int, weights_bytes: int) -> None:
    """JudgeError when the card cannot hold two runners beside the oracle's fp64 results."""
    import torch

    needed = 4 * slot_bytes + 7 * output_bytes + WEIGHTS_COPIES * weights_bytes + CONTEXTS_BYTES
    free, total = torch.cuda.mem_get_info(job.device)
    if needed > free:
        raise JudgeError(
            f"problem {job.problem} needs about {needed / 2**30:.1f} GiB on the card, {free / 2**30:.1f} of "
            f"{total / 2**30:.1f} GiB are free on {job.device}; end other programs there, or take a larger card"
        )


def fitting_calls(device: str, slot_bytes: int, output_bytes: int) -> int:
    """Calls of one window whose inputs (with the problem's process, candidate and reference) and outputs fit."""
    import torch

    torch.cuda.empty_cache()
    aside = 3 * slot_bytes + 3 * output_bytes  # drawing, and the oracle's results
    room = SLOTS_SHARE * (torch.cuda.mem_get_info(device)[0] - aside)
    return max(1, int(room / max(1, 3 * slot_bytes + 2 * output_bytes)))


def window_calls(call_ms: float, fitting: int, slot_bytes: int) -> tuple[int, int]:
    """How many calls a window holds, by the reference's time of one, and how many it may for a faster candidate."""
    calls = max(1, min(fitting, MOST_CALLS, -int(-WINDOW_MS // max(call_ms, 1e-3))))
    longest = int(LONGEST_MS / max(call_ms, 1e-3))
    most = min(MOST_CALLS, CAPACITY_BYTES // max(1, slot_bytes), longest, fitting)
    return calls, max(calls, most) if calls > 1 else 1
