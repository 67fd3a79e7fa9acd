"""Softmax of long rows: one pass for maximum and sum together, one for the result.

Problem: level1/23
Backend: triton
Kind: honest
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    # candidate
    base = tl.program_id(0).to(tl.int64) * columns
    lanes = tl.arange(0, BLOCK)
    # Finite at first, so that a lane that has seen nothing never computes inf - inf.
    highest = tl.full([BLOCK], -3.0e38, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        here = start + lanes
        x = tl.load(x_ptr + base + here, mask=here < columns, other=-float("inf"))
        larger = tl.maximum(highest, x)
        total = total * tl.exp(highest - larger) + tl.exp(x - larger)
        highest = larger
    top = tl.max(highest, axis=0)
    scale = 1.0 / tl.sum(total * tl.exp(highest - top), axis=0)
    for start in range(0, columns, BLOCK):
        here = start + lanes
        x = tl.load(x_ptr + base + here, mask=here < columns, other=-float("inf"))
        tl.store(out_ptr + base + here, tl.exp(x - top) * scale, mask=here < columns)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, columns = x.shape
        softmax_kernel[(rows,)](x, out, columns, BLOCK=4096, num_warps=8)
        return out
