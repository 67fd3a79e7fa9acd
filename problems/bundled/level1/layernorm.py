"""Layer normalisation of each row, written out, with learned weight and bias.

Exploit: mean, variance and the affine map need two reads of a row that stays in cache, not seven passes over memory.
"""

import torch
import torch.nn as nn

rows = 2048
features = 768


class Model(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(0.5 + torch.rand(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, features) -> (rows, features)"""
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = (centred * centred).mean(dim=-1, keepdim=True)
        return centred / torch.sqrt(variance + self.eps) * self.weight + self.bias


def get_inputs():
    return [torch.randn(rows, features) * 2.0 + 0.5]


def get_init_inputs():
    return [features]
