"""A first Triton kernel for bias_gelu_rmsnorm_problem.py: correct, slow, and with choices for `tune`."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 128  # tune: 128 256 512 1024 2048
WARPS = 1  # tune: 1 2 4 8 16
STAGES = 1  # tune: 1 2 3 4


@triton.jit
def rmsnorm_kernel(x, residual, bias, weight, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        place = start + tl.arange(0, BLOCK)
        inside = place < columns
        v = tl.load(x + row + place, mask=inside, other=0.0) + tl.load(bias + place, mask=inside, other=0.0)
        v = 0.5 * v * (1.0 + tl.erf(v * 0.70710678118)) + tl.load(residual + row + place, mask=inside, other=0.0)
        squares += tl.where(inside, v * v, 0.0)
    scale = tl.rsqrt(tl.sum(squares, axis=0) / columns + 1e-6)
    for start in range(0, columns, BLOCK):
        place = start + tl.arange(0, BLOCK)
        inside = place < columns
        v = tl.load(x + row + place, mask=inside, other=0.0) + tl.load(bias + place, mask=inside, other=0.0)
        v = 0.5 * v * (1.0 + tl.erf(v * 0.70710678118)) + tl.load(residual + row + place, mask=inside, other=0.0)
        tl.store(y + row + place, v * scale * tl.load(weight + place, mask=inside, other=0.0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(columns))
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x, residual):
        out = torch.empty_like(x)
        rmsnorm_kernel[(x.shape[0],)](
            x, residual, self.bias, self.weight, out, x.shape[1], BLOCK=BLOCK, num_warps=WARPS, num_stages=STAGES
        )
        return out
