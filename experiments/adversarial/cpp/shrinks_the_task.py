"""Sets the problem's size to 8 in every module, and computes 8 rows.

Problem: cpu_softsign
Mechanism: Verdict / the task shrunk in a shared namespace
Twin: softsign
Expect: rejected
Verdict: wrong_result
"""

import sys

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
        for module in list(sys.modules.values()):
            for name in ("ROWS", "COLUMNS", "N"):
                if name in getattr(module, "__dict__", {}):
                    setattr(module, name, 8)
        out = torch.empty_like(x)
        out[:8] = self.compute(x[:8])
        return out
