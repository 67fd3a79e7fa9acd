"""LayerNorm of each row, the row held in registers."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * columns
    here = tl.arange(0, BLOCK)
    inside = here < columns
    x = tl.load(x_ptr + base + here, mask=inside, other=0.0)
    centred = tl.where(inside, x - tl.sum(x, axis=0) / columns, 0.0)
    scale = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + here, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + here, mask=inside, other=0.0)
    tl.store(out_ptr + base + here, centred * scale * weight + bias, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns: int):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        rows, columns = x.shape
        weights = (self.norm.weight, self.norm.bias)
        block = triton.next_power_of_2(columns)
        layernorm_kernel[(rows,)](x, *weights, out, columns, self.norm.eps, BLOCK=block, num_warps=8)
        return out
