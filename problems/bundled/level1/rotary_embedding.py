"""Rotary position embedding: the two halves of each head rotated by position-dependent angles.

Exploit: one pass that reads both halves once; eager copies the swapped halves and makes four more passes.
"""

import torch
import torch.nn as nn

batch = 8
heads = 8
length = 512
width = 64


class Model(nn.Module):
    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """x (batch, heads, length, width), cosine and sine (length, width) -> like x"""
        first, second = x.chunk(2, dim=-1)
        swapped = torch.cat((-second, first), dim=-1)
        return x * cosine + swapped * sine


def get_inputs():
    return [torch.randn(batch, heads, length, width), torch.randn(length, width), torch.randn(length, width)]


def get_init_inputs():
    return []
