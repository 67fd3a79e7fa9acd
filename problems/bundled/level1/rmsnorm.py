"""Root-mean-square normalisation of each row, scaled by a learned weight.

Exploit: five passes become one read for the sum of squares and one cached re-read for the scaled write.
"""

import torch
import torch.nn as nn

rows = 1024
features = 2048


class Model(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(0.5 + torch.rand(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, features) -> (rows, features)"""
        mean_square = torch.mean(x * x, dim=-1, keepdim=True)
        return x / torch.sqrt(mean_square + self.eps) * self.weight


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features]
