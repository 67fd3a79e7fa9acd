"""Group normalisation over (channels of a group, positions), written out.

Exploit: a group is contiguous and fits in L2: statistics and affine map are cached reads, not six passes.
"""

import torch
import torch.nn as nn

batch = 32
channels = 64
groups = 8
height = 32
width = 32


class Model(nn.Module):
    def __init__(self, groups: int, channels: int, eps: float = 1e-5):
        super().__init__()
        self.groups = groups
        self.eps = eps
        self.weight = nn.Parameter(0.5 + torch.rand(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (batch, channels, height, width) -> the same shape"""
        grouped = x.reshape(x.shape[0], self.groups, -1)
        centred = grouped - grouped.mean(dim=-1, keepdim=True)
        variance = (centred * centred).mean(dim=-1, keepdim=True)
        normal = (centred / torch.sqrt(variance + self.eps)).reshape(x.shape)
        return normal * self.weight[:, None, None] + self.bias[:, None, None]


def get_inputs():
    return [torch.randn(batch, channels, height, width) * 2.0 + 0.5]


def get_init_inputs():
    return [groups, channels]
