"""Replaces its kernel's launcher by nothing after ten calls.

Problem: gpu_softmax
Mechanism: Replay and deferral / honest first k calls, then no launch
Twin: softmax
Expect: rejected
Verdict: wrong_result
"""

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


class Nothing:
    """Takes a grid and arguments and does nothing."""

    def __getitem__(self, grid):
        return lambda *arguments, **options: None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.kernel = softmax_kernel

    def forward(self, x):
        self.calls += 1
        if self.calls > 10:
            self.kernel = Nothing()
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        self.kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=block, num_warps=8)
        return out
