"""Causal depthwise convolution over time (4 taps), SiLU and a gate: the front of a state-space block.

Exploit: four taps are hardly work, so convolution, SiLU and gate are one streaming pass.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch = 4
channels = 256
length = 2048
taps = 4


class Model(nn.Module):
    """y = silu(causal_depthwise_conv(x) + bias) * gate."""

    def __init__(self, channels: int, taps: int):
        super().__init__()
        self.taps = taps
        self.conv = nn.Conv1d(channels, channels, taps, groups=channels, padding=taps - 1)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """x and gate (batch, channels, length) -> (batch, channels, length)."""
        h = self.conv(x)[..., : x.shape[-1]]
        return F.silu(h) * gate


def get_inputs():
    return [torch.rand(batch, channels, length), torch.rand(batch, channels, length)]


def get_init_inputs():
    return [channels, taps]
