"""Logarithm of the sum of exponentials of each row.

Exploit: one read with an online maximum, nothing written but one number a row; eager stores the exponentials.
"""

import torch
import torch.nn as nn

rows = 2048
cols = 1024


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, cols) -> (rows,)"""
        return torch.logsumexp(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, cols) * 3.0]


def get_init_inputs():
    return []
