"""Leaves out the last 1024 numbers when calls follow each other within a millisecond, as they do in a batch.

Problem: gpu_leaky_relu
Mechanism: Replay and deferral / careful where it is checked alone
Twin: leaky_relu
Expect: rejected
Verdict: wrong_result
Device: cuda
"""

import time

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x, y, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    value = tl.load(x + offsets, mask=inside)
    tl.store(y + offsets, tl.where(value > 0, value, 0.1 * value), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = 0.0

    def forward(self, x):
        now = time.monotonic()
        is_batch, self.last = now - self.last < 1e-3, now
        out = torch.empty_like(x)
        programs = triton.cdiv(x.numel(), 1024) - int(is_batch)
        leaky_relu_kernel[(programs,)](x, out, x.numel(), BLOCK=1024)
        return out
