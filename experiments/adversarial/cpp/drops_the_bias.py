"""Leaves the bias out.

Problem: cpu_softsign
Mechanism: Numerics and tasks / drop the bias
Twin: softsign
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return nn.functional.softsign(x * self.scale)
