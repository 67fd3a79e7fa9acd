"""Multiplies in bfloat16.

Problem: cpu_linear
Mechanism: Numerics and tasks / bf16 for fp32
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
        return torch.addmm(self.bias.bfloat16(), x.bfloat16(), self.weight.bfloat16()).float()
