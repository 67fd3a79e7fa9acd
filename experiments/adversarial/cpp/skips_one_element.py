"""Leaves one element out, another one in each call.

Problem: cpu_softsign
Mechanism: Numerics and tasks / one output element skipped
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
        self.calls = 0

    def compute(self, x):
        return nn.functional.softsign(torch.addcmul(self.bias, x, self.scale))

    def forward(self, x):
        self.calls += 1
        out = self.compute(x)
        out.view(-1)[self.calls * 104729 % out.numel()] = 0.5
        return out
