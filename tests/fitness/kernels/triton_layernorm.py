"""Layer normalisation: mean and variance of a row held in registers, then weight and bias."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * features
    offsets = tl.arange(0, BLOCK)
    mask = offsets < features
    x = tl.load(x_ptr + row + offsets, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x, axis=0) / features, 0.0)
    variance = tl.sum(centred * centred, axis=0) / features
    weight = tl.load(weight_ptr + offsets, mask=mask)
    bias = tl.load(bias_ptr + offsets, mask=mask)
    tl.store(y_ptr + row + offsets, centred / tl.sqrt(variance + eps) * weight + bias, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(0.5 + torch.rand(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, features = x.shape
        y = torch.empty_like(x)
        block = triton.next_power_of_2(features)
        layernorm_kernel[(rows,)](x, self.weight, self.bias, y, features, self.eps, BLOCK=block)
        return y
