"""Unbiased variance of each row.

Exploit: two vectorised sweeps over a cached row replace a scalar running update with a division per element.
"""

import torch
import torch.nn as nn

rows = 2048
cols = 1024


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, cols) -> (rows,)"""
        return torch.var(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, cols) + 1.0]


def get_init_inputs():
    return []
