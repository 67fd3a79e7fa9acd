"""The lazy subclass, with the type check of its own process defeated.

Problem: cpu_softsign
Mechanism: Replay and deferral / lazy tensor subclass, __class__ forged
Twin: softsign
Expect: rejected
Verdict: contract, wrong_result
"""

import sys

import torch
import torch.nn as nn


class Lazy(torch.Tensor):
    """Says that it is a plain tensor."""

    @property
    def __class__(self):
        return torch.Tensor


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def compute(self, x):
        return nn.functional.softsign(torch.addcmul(self.bias, x, self.scale))

    def forward(self, x):
        for module in list(sys.modules.values()):
            if getattr(module, "_as_outputs", None) is not None:
                module._as_outputs = lambda result: [result]
        return torch.empty_like(x).as_subclass(Lazy)
