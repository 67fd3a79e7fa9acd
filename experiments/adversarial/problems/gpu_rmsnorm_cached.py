"""RMS normalisation of each row of 4096, times a weight per column: its intermediates fit into a large cache.

Small: ROWS, COLUMNS = 24, 256
"""

import torch
import torch.nn as nn

ROWS, COLUMNS = 1536, 4096


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        """x (rows, columns) -> the same shape"""
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * self.weight


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
