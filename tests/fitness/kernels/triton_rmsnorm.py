"""rmsnorm of one row per program, with the learned weight; a loop for rows of any length."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, y_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * features
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, features, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + offsets, mask=offsets < features, other=0.0)
        squares += x * x
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / features + eps)
    for start in range(0, features, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < features
        x = tl.load(x_ptr + row + offsets, mask=mask)
        weight = tl.load(weight_ptr + offsets, mask=mask)
        tl.store(y_ptr + row + offsets, x * scale * weight, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(0.5 + torch.rand(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, features = x.shape
        y = torch.empty_like(x)
        rmsnorm_kernel[(rows,)](x, self.weight, y, features, self.eps, BLOCK=1024)
        return y
