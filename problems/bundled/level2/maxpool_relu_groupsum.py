"""Max pooling 2x2, shift per channel, ReLU and sum over groups of 8 channels.

Exploit: each output pixel can fold its 8 channels of 2x2 windows; the pooled tensor need not exist.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch = 16
channels = 64
height = 64
width = 64
groups = 8


class Model(nn.Module):
    """y = sum over each group of channels of relu(max_pool2d(x, 2) + shift)."""

    def __init__(self, channels: int, groups: int):
        super().__init__()
        self.groups = groups
        self.shift = nn.Parameter(torch.rand(channels) - 0.9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (batch, channels, height, width) -> (batch, groups, height / 2, width / 2)."""
        h = torch.relu(F.max_pool2d(x, 2) + self.shift[:, None, None])
        n, c, rows, columns = h.shape
        return h.view(n, self.groups, c // self.groups, rows, columns).sum(dim=2)


def get_inputs():
    return [torch.rand(batch, channels, height, width)]


def get_init_inputs():
    return [channels, groups]
