"""Scale, bias per column, clamp and log-sum-exp of every row.

Exploit: one number per row leaves the kernel and the clamp bounds the exponent: one pass will do.
"""

import torch
import torch.nn as nn

rows = 4096
columns = 1024
scale = 2.0
low = -4.0
high = 4.0


class Model(nn.Module):
    """y = logsumexp(clamp(x * scale + bias, low, high)) over the last dimension."""

    def __init__(self, columns: int, scale: float, low: float, high: float):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns) * 0.5)
        self.scale = scale
        self.low = low
        self.high = high

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, columns) -> (rows,)."""
        h = torch.clamp(x * self.scale + self.bias, self.low, self.high)
        return torch.logsumexp(h, dim=-1)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns, scale, low, high]
