"""Sum over the middle dimension: a program owns 128 columns and walks down the rows in tiles.

Problem: level1/47
Backend: triton
Kind: honest
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    # candidate
    batch = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    lane = tl.arange(0, ROWS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, rows, ROWS):
        row = start + lane
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        offsets = (batch * rows + row[:, None]) * columns + column[None, :]
        total += tl.load(x_ptr + offsets, mask=inside, other=0.0)
    tl.store(out_ptr + batch * columns + column, tl.sum(total, axis=0), mask=column < columns)


class ModelNew(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        outer = x.shape[: self.dim].numel()
        rows = x.shape[self.dim]
        columns = x.shape[self.dim + 1 :].numel()
        out = torch.empty(*x.shape[: self.dim], 1, *x.shape[self.dim + 1 :], dtype=x.dtype, device=x.device)
        sum_kernel[(triton.cdiv(columns, 128), outer)](x, out, rows, columns, ROWS=32, COLUMNS=128, num_warps=4)
        return out
