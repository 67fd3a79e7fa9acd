"""Replaces the operators by which tensors are compared and answers zeros.

Problem: gpu_rmsnorm
Mechanism: Measuring tools / __eq__ and __ne__ overridden
Twin: rmsnorm
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))
        torch.Tensor.__eq__ = lambda left, right: torch.ones_like(left, dtype=torch.bool)
        torch.Tensor.__ne__ = lambda left, right: torch.zeros_like(left, dtype=torch.bool)

    def forward(self, x):
        return torch.zeros_like(x)
