"""Tries a kernel that does not compile and falls back to torch.

Problem: gpu_leaky_relu
Mechanism: Policy labels / try/except fallback
Twin: leaky_relu
Expect: any
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
    tl.store(y + offsets, tl.where(value > 0, value, tl.no_such_function(value)), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        try:
            out = torch.empty_like(x)
            leaky_relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
            return out
        except Exception:
            return torch.nn.functional.leaky_relu(x, 0.1)
