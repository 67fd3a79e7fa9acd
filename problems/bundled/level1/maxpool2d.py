"""Maximum over 3x3 windows with stride 2 and one row or column of padding.

Exploit: eager also records where each maximum was; without that, and with the border peeled off, the windows vectorise.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch = 8
channels = 32
height = 96
width = 96


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (batch, channels, height, width) -> (batch, channels, height / 2, width / 2)"""
        return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs():
    return []
