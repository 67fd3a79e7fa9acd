"""Reads where nothing is mapped.

Problem: cpu_softsign
Mechanism: Host / crash
Twin: softsign
Expect: rejected
Verdict: runtime_error
"""

import ctypes

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return ctypes.string_at(8)
