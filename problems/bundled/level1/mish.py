"""Mish: x * tanh(log(1 + exp(x))), element by element.

Exploit: with n = e^x (e^x + 2) the answer is x n / (n + 2): one exponential and one pass instead of three of each.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 1024
cols = 1024


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, cols) -> (rows, cols)"""
        return x * torch.tanh(F.softplus(x))


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
