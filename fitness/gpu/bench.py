"""What timed rounds need of a GPU: a buffer larger than its cache, a watch, and what a window costs around the work."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fitness import timing
from fitness.children import Zygote
from fitness.evaluation import Job, JudgeError
from fitness.gpu import memory
from fitness.gpu.memory import DeviceError
from fitness.gpu.session import GpuSession
from fitness.nvml import Watch
from fitness.rounds import Bench
from fitness.session import NO_OP

if TYPE_CHECKING:
    import torch

FLUSH_CACHES = 2
"""Sizes of the last-level cache that are overwritten before every window."""
NO_OP_WINDOWS, SETTLING = 30, 6


def open_bench(device: str, zygote: Zygote, *, fenced: bool) -> Bench:
    """The bench of one GPU, its fixed cost measured with a trusted no-op. JudgeError where CUDA does not work."""
    import torch

    try:
        memory.use(device)
        memory.driver()
    except (RuntimeError, DeviceError) as error:
        raise JudgeError(f"{device} cannot be used: {error}; see `kb-evolve doctor`") from error
    size = FLUSH_CACHES * torch.cuda.get_device_properties(device).L2_cache_size
    flush = torch.zeros(size // 4, dtype=torch.int32, device=device)
    watch = Watch.over(device, lambda: [os.getpid(), *(child.pid for child in zygote.living())])

    def begin(is_on: bool) -> None:
        if is_on:
            watch.begin()

    fixed_ms = _no_op_window_ms(device, zygote, flush, fenced=fenced)
    return Bench(begin, flush, disturbed=watch.round, summary=watch.summary, fixed_ms=fixed_ms)


def _no_op_window_ms(device: str, zygote: Zygote, flush: torch.Tensor, *, fenced: bool) -> float:
    """Window of a single call that adds 1 to 16 numbers; rather too little than too much, since it is taken off."""
    session = GpuSession(zygote, Job("no-op", NO_OP, NO_OP, device=device), flush, fenced=fenced)
    runner = session.reference(False)
    try:
        windows = [
            runner.call([draw.inputs for draw in session.new_batch("own", 1)], flush).window_ms
            for _ in range(NO_OP_WINDOWS)
        ]
    finally:
        runner.close()
        runner.child.discard()
        session.close()
    return timing.median_interval(windows[SETTLING:])[0]
