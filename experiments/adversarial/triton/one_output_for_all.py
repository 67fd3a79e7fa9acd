"""Computes into one buffer for all calls: earlier answers are overwritten.

Problem: gpu_leaky_relu
Mechanism: Numerics and tasks / alias of an earlier output
Twin: leaky_relu
Expect: rejected
Verdict: contract, wrong_result
"""

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
        self.out = None

    def forward(self, x):
        if self.out is None:
            self.out = torch.empty_like(x)
        leaky_relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, self.out, x.numel(), BLOCK=1024)
        return self.out
