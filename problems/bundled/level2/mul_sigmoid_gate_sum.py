"""Elementwise product, sigmoid, gate by a third tensor and sum of every row.

Exploit: three inputs are read once and one number per row is written, without full-size temporaries.
"""

import torch
import torch.nn as nn

rows = 2048
columns = 1024


class Model(nn.Module):
    """y = sum(sigmoid(a * b) * gate) over the last dimension."""

    def forward(self, a: torch.Tensor, b: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """a, b and gate (rows, columns) -> (rows,)."""
        return (torch.sigmoid(a * b) * gate).sum(dim=-1)


def get_inputs():
    return [torch.rand(rows, columns), torch.rand(rows, columns), torch.rand(rows, columns)]


def get_init_inputs():
    return []
