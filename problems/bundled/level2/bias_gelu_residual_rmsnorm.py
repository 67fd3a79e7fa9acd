"""Bias, tanh-form GELU written out, residual addition and row RMS normalisation with a gain.

Exploit: eager makes about fifteen passes over 8 MB; one walk per row keeps all in L1, tanh vectorised.
"""

import math

import torch
import torch.nn as nn

rows = 4096
features = 512
eps = 1e-6


class Model(nn.Module):
    """y = rms_normalise(gelu(x + bias) + residual) * gain, row by row."""

    def __init__(self, features: int, eps: float):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features) * 0.5)
        self.gain = nn.Parameter(torch.rand(features) + 0.5)
        self.eps = eps

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x and residual (rows, features) -> (rows, features)."""
        h = x + self.bias
        inner = math.sqrt(2.0 / math.pi) * (h + 0.044715 * torch.pow(h, 3.0))
        h = 0.5 * h * (1.0 + torch.tanh(inner)) + residual
        return h * torch.rsqrt(h.pow(2).mean(dim=-1, keepdim=True) + self.eps) * self.gain


def get_inputs():
    return [torch.rand(rows, features), torch.rand(rows, features)]


def get_init_inputs():
    return [features, eps]
