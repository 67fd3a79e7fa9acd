"""Returns no elements at all: every one of them is right.

Problem: gpu_bias_gelu
Mechanism: Numerics and tasks / size 0
Twin: bias_gelu
Expect: rejected
Verdict: contract
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return x[:0]
