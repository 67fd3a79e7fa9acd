"""Linear by torch, then subtraction, product and ReLU in one pass, in place.

Problem: level2/9
Backend: triton
Kind: honest
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def epilogue_kernel(y_ptr, count, subtract, multiply, BLOCK: tl.constexpr):
    # candidate
    here = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = here < count
    y = (tl.load(y_ptr + here, mask=inside) - subtract) * multiply
    tl.store(y_ptr + here, tl.where(y < 0.0, 0.0, y), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, subtract_value, multiply_value):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.subtract_value = subtract_value
        self.multiply_value = multiply_value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).detach()
        grid = (triton.cdiv(y.numel(), 2048),)
        epilogue_kernel[grid](y, y.numel(), self.subtract_value, self.multiply_value, BLOCK=2048, num_warps=8)
        return y
