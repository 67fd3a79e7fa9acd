"""Diagonal matrix times matrix: every row times one number.

Problem: level1/12
Backend: triton
Kind: honest
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_rows_kernel(diagonal_ptr, b_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    # candidate
    row = tl.program_id(0).to(tl.int64)
    here = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = here < columns
    scale = tl.load(diagonal_ptr + row)
    b = tl.load(b_ptr + row * columns + here, mask=inside)
    tl.store(out_ptr + row * columns + here, b * scale, mask=inside)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        A, B = A.contiguous(), B.contiguous()
        out = torch.empty_like(B)
        rows, columns = B.shape
        scale_rows_kernel[(rows, triton.cdiv(columns, 2048))](A, B, out, columns, BLOCK=2048, num_warps=8)
        return out
