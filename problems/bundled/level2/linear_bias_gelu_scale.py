"""Linear layer with a small inner size (16), bias, tanh-form GELU and a scale per output feature.

Exploit: with 16 terms per output the product is memory-bound, so the rest fits in its epilogue.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 32768
in_features = 16
out_features = 64


class Model(nn.Module):
    """y = gelu(x @ weight + bias) * scale."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features) / in_features**0.5)
        self.bias = nn.Parameter(torch.randn(out_features) * 0.1)
        self.scale = nn.Parameter(torch.rand(out_features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, in_features) -> (rows, out_features)."""
        h = torch.matmul(x, self.weight) + self.bias
        return F.gelu(h, approximate="tanh") * self.scale


def get_inputs():
    return [torch.rand(rows, in_features)]


def get_init_inputs():
    return [in_features, out_features]
