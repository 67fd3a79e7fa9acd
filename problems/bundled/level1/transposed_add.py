"""A matrix plus the transpose of another.

Exploit: square tiles keep both access orders in cache; walking one matrix down its columns wastes each cache line.
"""

import torch
import torch.nn as nn

size = 1536


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """a, b (size, size) -> (size, size)"""
        return a + b.t()


def get_inputs():
    return [torch.randn(size, size), torch.randn(size, size)]


def get_init_inputs():
    return []
