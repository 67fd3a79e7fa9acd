"""What a problem needs of a card's memory, and how many calls of a window it has room for."""

from __future__ import annotations

from fitness.evaluation import Job, JudgeError

SLOTS_SHARE = 0.6
"""Share of the free memory that all copies of a batch's inputs and outputs may take."""
CONTEXTS_BYTES = 6 << 30
"""For the CUDA contexts and libraries of three processes, and for comparing outputs by parts."""


def check(job: Job, slot_bytes: int, output_bytes: int) -> None:
    """JudgeError when the card cannot hold two runners beside the oracle's fp64 results."""
    import torch

    needed = 4 * slot_bytes + 7 * output_bytes + CONTEXTS_BYTES
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
