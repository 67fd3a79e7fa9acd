"""What timed rounds need of a GPU: a buffer larger than its cache, a watch, and what a window costs around the work."""

from __future__ import annotations

import os

from fitness.children import Zygote
from fitness.evaluation import Job, JudgeError
from fitness.gpu import memory, sentinel
from fitness.gpu.session import GpuSession
from fitness.nvml import Watch
from fitness.rounds import Bench

FLUSH_CACHES = 2
"""Sizes of the last-level cache that are overwritten before every window."""
SHORT = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(1 << 24)]

def get_init_inputs():
    return []
"""
"""Some tens of microseconds of work on any card: what a window costs around its calls shows, as in real problems."""


def open_bench(device: str, zygote: Zygote, *, fenced: bool) -> Bench:
    """The bench of one GPU, its fixed cost measured with a trusted problem. JudgeError where CUDA does not work."""
    import torch

    try:
        memory.use(device)
        sentinel.shared()
    except RuntimeError as error:
        raise JudgeError(f"{device} cannot be used: {error}; see `kb-evolve doctor`") from error
    size = FLUSH_CACHES * torch.cuda.get_device_properties(device).L2_cache_size
    flush = torch.zeros(size // 4, dtype=torch.int32, device=device)
    watch = Watch.over(device, lambda: [os.getpid(), *(child.pid for child in zygote.living())])

    def begin(is_on: bool) -> None:
        if is_on:
            watch.begin()

    session = GpuSession(zygote, Job("short", SHORT, SHORT, device=device), flush, fenced=fenced)
    session.close()
    return Bench(begin, flush, disturbed=watch.round, summary=watch.summary, fixed_ms=session.fixed_ms)
