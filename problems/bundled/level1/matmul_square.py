"""Product of two square matrices.

Exploit: register and cache blocking; the vendor library has both, so winning here is not expected.
"""

import torch
import torch.nn as nn

size = 512


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """a, b (size, size) -> (size, size)"""
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(size, size), torch.randn(size, size)]


def get_init_inputs():
    return []
