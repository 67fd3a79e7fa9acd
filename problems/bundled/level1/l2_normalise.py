"""Every column of a matrix divided by its Euclidean length.

Exploit: walk the rows in memory order with one accumulator per column, in column blocks that stay in cache.
"""

import torch
import torch.nn as nn

rows = 2048
cols = 1024


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, cols) -> (rows, cols)"""
        length = torch.sqrt(torch.sum(x * x, dim=0, keepdim=True))
        return x / torch.clamp(length, min=1e-12)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
