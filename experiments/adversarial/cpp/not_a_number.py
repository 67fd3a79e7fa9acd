"""Returns NaN, which no comparison calls too large.

Problem: cpu_softsign
Mechanism: Verdict / NaN into expected
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
        return torch.full_like(x, float("nan"))
