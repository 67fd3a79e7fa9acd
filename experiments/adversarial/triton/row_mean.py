"""One program per row.

Problem: gpu_row_mean
Mechanism: Honest / reduction
Twin: none
Expect: accepted
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_mean_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x + row + offsets, mask=offsets < columns, other=0.0)
    tl.store(y + tl.program_id(0), tl.sum(total, axis=0) / columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = x.new_empty(x.shape[0])
        row_mean_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=2048, num_warps=8)
        return out
