"""Cuts both factors to the 10 bits of mantissa that TF32 keeps.

Problem: cpu_linear
Mechanism: Numerics and tasks / tf32 for fp32
Twin: linear
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, depth, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(depth, columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        factors = [(t.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32) for t in (x, self.weight)]
        return torch.addmm(self.bias, *factors)
