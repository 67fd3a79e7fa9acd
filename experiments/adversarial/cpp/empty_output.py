"""Returns a tensor of size 0: nothing in it is wrong.

Problem: cpu_softsign
Mechanism: Numerics and tasks / size 0
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

    def forward(self, x):
        return x.new_empty(0)
