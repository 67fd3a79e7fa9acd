"""Zeros, then the diagonals.

Problem: cpu_diagonals
Mechanism: Honest / zeros, then the diagonals
Twin: none
Expect: accepted
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        rows, size = x.shape
        out = torch.zeros(rows, size * size)
        out[:, :: size + 1] = x
        return out.view(rows, size, size)
