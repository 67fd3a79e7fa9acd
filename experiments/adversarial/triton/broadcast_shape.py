"""Returns one row, which would broadcast in a comparison.

Problem: gpu_rmsnorm
Mechanism: Numerics and tasks / broadcast shape
Twin: rmsnorm
Expect: rejected
Verdict: contract
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x, weight, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    value = tl.load(x + row + offsets, mask=inside, other=0.0)
    scale = 1 / tl.sqrt(tl.sum(value * value, axis=0) / columns + 1e-6)
    gain = tl.load(weight + offsets, mask=inside, other=0.0)
    tl.store(y + row + offsets, value * scale * gain, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def compute(self, x):
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        rmsnorm_kernel[(x.shape[0],)](x, self.weight, out, x.shape[1], BLOCK=block, num_warps=8)
        return out

    def forward(self, x):
        return self.compute(x)[:1]
