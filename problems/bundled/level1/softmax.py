"""Softmax of each row.

Exploit: an online maximum saves one of three reads, and a vectorised exponential makes the rest memory-bound.
"""

import torch
import torch.nn as nn

rows = 4096
cols = 1024


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, cols) -> (rows, cols)"""
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, cols) * 3.0]


def get_init_inputs():
    return []
