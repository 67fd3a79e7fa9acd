"""Rescaling of every row to [0, 1] by its own minimum and maximum, square and cumulative sum along the row.

Exploit: one read gives both extremes, and rows run side by side hide the running sum's latency.
"""

import torch
import torch.nn as nn

rows = 2048
columns = 1024
eps = 1e-5


class Model(nn.Module):
    """y = cumsum(((x - min) / (max - min + eps)) ** 2) along the last dimension."""

    def __init__(self, eps: float):
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, columns) -> (rows, columns)."""
        low = x.amin(dim=-1, keepdim=True)
        high = x.amax(dim=-1, keepdim=True)
        return torch.cumsum(((x - low) / (high - low + self.eps)).pow(2), dim=-1)


def get_inputs():
    return [torch.rand(rows, columns)]


def get_init_inputs():
    return [eps]
