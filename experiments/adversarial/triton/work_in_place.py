"""Writes its answer over its input and returns that.

Problem: gpu_leaky_relu
Mechanism: Numerics and tasks / alias of the input
Twin: leaky_relu
Expect: rejected
Verdict: contract, runtime_error
"""

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
    def forward(self, x):
        leaky_relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, x, x.numel(), BLOCK=1024)
        return x
