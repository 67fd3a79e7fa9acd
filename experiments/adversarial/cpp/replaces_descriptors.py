"""Puts /dev/null and copies of one another in the place of its descriptors.

Problem: cpu_softsign
Mechanism: Verdict / dup2 tricks
Twin: softsign
Expect: rejected
Verdict: contract, wrong_result, runtime_error, timeout
"""

import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        for descriptor in range(3, 7):
            os.dup2(1, descriptor)
        return torch.zeros_like(x)
