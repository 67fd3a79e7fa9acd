"""Linear by torch, then ReLU and division in one pass, in place.

Problem: level2/63
Backend: triton
Kind: honest
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def epilogue_kernel(y_ptr, count, divisor, BLOCK: tl.constexpr):
    # candidate
    here = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = here < count
    y = tl.load(y_ptr + here, mask=inside)
    tl.store(y_ptr + here, tl.where(y < 0.0, 0.0, y) / divisor, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).detach()
        epilogue_kernel[(triton.cdiv(y.numel(), 2048),)](y, y.numel(), self.divisor, BLOCK=2048, num_warps=8)
        return y
