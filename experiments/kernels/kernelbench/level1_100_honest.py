"""Hinge loss: one partial sum per row, then one program that adds the partial sums.

Problem: level1/100
Backend: triton
Kind: honest
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sums_kernel(predictions_ptr, targets_ptr, partial_ptr, columns, BLOCK: tl.constexpr):
    # candidate
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        here = start + lanes
        inside = here < columns
        prediction = tl.load(predictions_ptr + row * columns + here, mask=inside, other=0.0)
        target = tl.load(targets_ptr + here, mask=inside, other=0.0)
        total += tl.where(inside, tl.maximum(1.0 - prediction * target, 0.0), 0.0)
    tl.store(partial_ptr + row, tl.sum(total, axis=0))


@triton.jit
def mean_kernel(partial_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, rows, BLOCK):
        here = start + lanes
        total += tl.load(partial_ptr + here, mask=here < rows, other=0.0) / columns
    tl.store(out_ptr, tl.sum(total, axis=0) / rows)


class ModelNew(nn.Module):
    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        predictions, targets = predictions.contiguous(), targets.contiguous()
        columns = predictions.shape[-1]
        rows = predictions.numel() // columns
        partial = torch.empty(rows, dtype=torch.float32, device=predictions.device)
        out = torch.empty((), dtype=torch.float32, device=predictions.device)
        row_sums_kernel[(rows,)](predictions, targets, partial, columns, BLOCK=4096, num_warps=8)
        mean_kernel[(1,)](partial, out, rows, columns, BLOCK=4096, num_warps=8)
        return out
