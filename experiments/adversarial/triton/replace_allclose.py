"""Replaces everything that could compare and answers zeros.

Problem: gpu_softmax
Mechanism: Verdict / allclose, equal and statistics replaced
Twin: softmax
Expect: rejected
Verdict: wrong_result
"""

import statistics

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        yes = lambda *arguments, **keywords: True  # noqa: E731
        torch.allclose = torch.equal = torch.Tensor.allclose = torch.Tensor.equal = yes
        torch.isclose = lambda left, right, **keywords: torch.ones_like(left, dtype=torch.bool)
        torch.testing.assert_close = lambda *arguments, **keywords: None
        statistics.median = statistics.mean = lambda values: 1e-6

    def forward(self, x):
        return torch.zeros_like(x)
