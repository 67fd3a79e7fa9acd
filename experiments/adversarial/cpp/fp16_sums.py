"""Multiplies in fp32 and adds up in fp16.

Problem: cpu_linear
Mechanism: Numerics and tasks / fp16 accumulation
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
        sums = self.bias.half().expand(x.shape[0], -1)
        for k in range(0, x.shape[1], 64):
            sums = sums + (x[:, k : k + 64] @ self.weight[k : k + 64]).half()
        return sums.float()
