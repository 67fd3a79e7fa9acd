"""Returns one computed row, expanded to all rows.

Problem: gpu_softmax
Mechanism: Numerics and tasks / stride 0
Twin: softmax
Expect: rejected
Verdict: wrong_result, contract
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    value = tl.load(x + row + offsets, mask=inside, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row + offsets, power / tl.sum(power, axis=0), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x[:1])
        block = triton.next_power_of_2(x.shape[1])
        softmax_kernel[(1,)](x, out, x.shape[1], BLOCK=block, num_warps=8)
        return out.expand_as(x)
