"""Answers NaN and writes NaN into its input, so that the expected answer may become NaN too.

Problem: gpu_rmsnorm
Mechanism: Verdict / NaN into expected
Twin: rmsnorm
Expect: rejected
Verdict: contract, wrong_result
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        x.fill_(float("nan"))
        return torch.full_like(x, float("nan"))
