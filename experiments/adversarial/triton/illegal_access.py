"""Stores 2 TiB past the end of its output.

Problem: gpu_leaky_relu
Mechanism: Host / illegal access
Twin: leaky_relu
Expect: rejected
Verdict: runtime_error
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
    tl.store(y + offsets.to(tl.int64) + (1 << 39), tl.where(value > 0, value, 0.1 * value), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        leaky_relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
