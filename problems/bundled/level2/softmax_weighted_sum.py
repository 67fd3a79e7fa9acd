"""Attention pooling: scaled scores, softmax over time, weights times values, sum over time.

Exploit: the weighted values need never be written; each value is read once and accumulated.
"""

import torch
import torch.nn as nn

batch = 64
length = 512
width = 160


class Model(nn.Module):
    """y = sum over time of softmax(scores * temperature + bias) * values."""

    def __init__(self, length: int):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor([1.5]))
        self.bias = nn.Parameter(torch.randn(length))

    def forward(self, scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """scores (batch, length), values (batch, length, width) -> (batch, width)."""
        weights = torch.softmax(scores * self.temperature + self.bias, dim=-1)
        return (weights.unsqueeze(-1) * values).sum(dim=1)


def get_inputs():
    return [torch.randn(batch, length), torch.randn(batch, length, width)]


def get_init_inputs():
    return [length]
