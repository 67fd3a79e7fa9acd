"""Bias, swish (x times its sigmoid), residual addition and layer normalisation over the last dimension.

Exploit: five eager passes become one walk over each row, with mean and variance taken while the row is in L1.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 2048
features = 1024


class Model(nn.Module):
    """y = layer_norm(swish(x + bias) + residual)."""

    def __init__(self, features: int):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features) * 0.5)
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x and residual (rows, features) -> (rows, features)."""
        h = x + self.bias
        h = h * torch.sigmoid(h) + residual
        return F.layer_norm(h, h.shape[-1:], self.norm.weight, self.norm.bias, self.norm.eps)


def get_inputs():
    return [torch.rand(rows, features), torch.rand(rows, features)]


def get_init_inputs():
    return [features]
