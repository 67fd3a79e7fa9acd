"""Two programs add into each element without atomics and race for the last word.

Problem: gpu_row_mean
Mechanism: Numerics and tasks / a race that often loses
Twin: row_mean
Expect: rejected
Verdict: wrong_result
Device: cuda
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_mean_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) // 2 * columns
    half = columns // 2
    first = tl.program_id(0) % 2 * half
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(first, first + half, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x + row + offsets, mask=offsets < first + half, other=0.0)
    place = y + tl.program_id(0) // 2
    tl.store(place, tl.load(place) + tl.sum(total, axis=0) / columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = x.new_zeros(x.shape[0])
        row_mean_kernel[(2 * x.shape[0],)](x, out, x.shape[1], BLOCK=2048, num_warps=8)
        return out
