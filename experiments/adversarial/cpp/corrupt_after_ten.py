"""Right for ten calls; then one element is wrong in each.

Problem: cpu_softsign
Mechanism: Replay and deferral / correct for 10 calls, then corrupt
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
        if self.calls > 10:
            out.view(-1)[self.calls * 7919 % out.numel()] += 0.01
        return out
