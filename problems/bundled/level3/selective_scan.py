"""Selective state-space scan: input-dependent step, 16 states per channel, skip connection and SiLU gate.

Exploit: eager pays about ten operator calls per step; channels are independent, 16 states a vector.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch = 4
length = 128
channels = 64
states = 16


class Model(nn.Module):
    """h = exp(step * a) * h + step * b * x;  y = (h . c + skip * x) * silu(gate)."""

    def __init__(self, channels: int, states: int):
        super().__init__()
        self.log_a = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(channels, 1))
        self.step_bias = nn.Parameter(torch.randn(channels) * 0.1 - 1.0)
        self.skip = nn.Parameter(torch.rand(channels) + 0.5)

    def forward(
        self, x: torch.Tensor, step: torch.Tensor, b: torch.Tensor, c: torch.Tensor, gate: torch.Tensor
    ) -> torch.Tensor:
        """x, step and gate (batch, length, channels), b and c (batch, length, states) -> the shape of x."""
        a = -torch.exp(self.log_a)
        step = F.softplus(step + self.step_bias)
        h = x.new_zeros(x.shape[0], *a.shape)
        outputs = []
        for t in range(x.shape[1]):
            decay = torch.exp(step[:, t, :, None] * a)
            h = decay * h + (step[:, t] * x[:, t])[:, :, None] * b[:, t, None, :]
            outputs.append((h * c[:, t, None, :]).sum(dim=-1))
        return (torch.stack(outputs, dim=1) + self.skip * x) * F.silu(gate)


def get_inputs():
    wide = (batch, length, channels)
    narrow = (batch, length, states)
    return [torch.randn(wide), torch.rand(wide), torch.randn(narrow), torch.randn(narrow), torch.randn(wide)]


def get_init_inputs():
    return [channels, states]
