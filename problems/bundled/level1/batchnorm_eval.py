"""Batch normalisation with stored statistics, written out.

Exploit: four parameters per channel fold into one scale and one shift, so four passes become one multiply-add.
"""

import torch
import torch.nn as nn

batch = 16
channels = 64
height = 48
width = 48


class Model(nn.Module):
    def __init__(self, channels: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(0.5 + torch.rand(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.register_buffer("running_mean", torch.randn(channels))
        self.register_buffer("running_var", 0.5 + torch.rand(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (batch, channels, height, width) -> the same shape"""
        centred = x - self.running_mean[:, None, None]
        normal = centred / torch.sqrt(self.running_var + self.eps)[:, None, None]
        return normal * self.weight[:, None, None] + self.bias[:, None, None]


def get_inputs():
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs():
    return [channels]
