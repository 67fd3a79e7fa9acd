"""Works in place on its input.

Problem: cpu_softsign
Mechanism: Numerics and tasks / input mutation
Twin: softsign
Expect: rejected
Verdict: contract, runtime_error
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return nn.functional.softsign(x.mul_(self.scale).add_(self.bias))
