"""Launches half the programs that the output needs.

Problem: gpu_bias_gelu
Mechanism: Numerics and tasks / last rows dropped
Twin: bias_gelu
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bias_gelu_kernel(x, bias, y, count, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    value = tl.load(x + offsets, mask=inside) + tl.load(bias + offsets % columns, mask=inside)
    tl.store(y + offsets, 0.5 * value * (1 + tl.erf(value * 0.70710678)), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        out = torch.empty_like(x)
        bias_gelu_kernel[(triton.cdiv(x.numel(), 2048),)](x, self.bias, out, x.numel(), x.shape[1], BLOCK=1024)
        return out
