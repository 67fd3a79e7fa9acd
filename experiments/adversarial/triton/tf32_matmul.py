"""Uses tensor cores in TF32 under precision fp32.

Problem: gpu_matmul
Mechanism: Numerics and tasks / tf32 for fp32
Twin: matmul
Expect: rejected
Verdict: wrong_result
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a, b, c, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        left_inside = (rows[:, None] < m) & (depth[None, :] < k)
        right_inside = (depth[:, None] < k) & (columns[None, :] < n)
        left = tl.load(a + rows[:, None] * k + depth[None, :], mask=left_inside, other=0.0)
        right = tl.load(b + depth[:, None] * n + columns[None, :], mask=right_inside, other=0.0)
        total = tl.dot(left, right, total, input_precision="tf32")
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=inside)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = a.new_empty(a.shape[0], b.shape[1])
        grid = triton.cdiv(a.shape[0], 64), triton.cdiv(b.shape[1], 128)
        sizes = a.shape[0], b.shape[1], a.shape[1]
        matmul_kernel[grid](a, b, out, *sizes, BLOCK_M=64, BLOCK_N=128, BLOCK_K=16, num_warps=8, num_stages=3)
        return out
