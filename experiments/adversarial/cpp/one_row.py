"""Returns one row, which broadcasts.

Problem: cpu_softsign
Mechanism: Numerics and tasks / broadcast shape
Twin: softsign
Expect: rejected
Verdict: contract
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def compute(self, x):
        return nn.functional.softsign(torch.addcmul(self.bias, x, self.scale))

    def forward(self, x):
        return self.compute(x[:1])
