"""Replaces every comparison that torch offers, and returns zeros.

Problem: cpu_softsign
Mechanism: Verdict / allclose, equal and __eq__ replaced
Twin: softsign
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn

for owner in (torch, torch.Tensor, torch.testing):
    for name in ("allclose", "isclose", "equal", "eq", "ne", "__eq__", "__ne__", "all", "any", "assert_close"):
        if hasattr(owner, name):
            setattr(owner, name, lambda *_, **__: True)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return torch.zeros_like(x)
