"""Linear by torch, then GELU and softmax of a whole row in one pass, in place.

Problem: level2/99
Backend: triton
Kind: honest
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_softmax_kernel(y_ptr, columns, BLOCK: tl.constexpr):
    # candidate
    base = tl.program_id(0).to(tl.int64) * columns
    here = tl.arange(0, BLOCK)
    inside = here < columns
    y = tl.load(y_ptr + base + here, mask=inside, other=0.0)
    gelu = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    gelu = tl.where(inside, gelu, -float("inf"))
    power = tl.exp(gelu - tl.max(gelu, axis=0))
    tl.store(y_ptr + base + here, power / tl.sum(power, axis=0), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).detach()
        rows, columns = y.shape
        gelu_softmax_kernel[(rows,)](y, columns, BLOCK=triton.next_power_of_2(columns), num_warps=16)
        return y
