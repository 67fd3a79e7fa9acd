"""Product of two square fp32 matrices.

Small: SIZE = 128
"""

import torch
import torch.nn as nn

SIZE = 2048


class Model(nn.Module):
    def forward(self, a, b):
        """a (size, size), b (size, size) -> (size, size)"""
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)]


def get_init_inputs():
    return []
