"""A linear layer whose bias is zero at first."""

import torch
import torch.nn as nn

ROWS, DEPTH, COLUMNS = 64, 512, 512


class Model(nn.Module):
    def __init__(self, depth, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(depth, columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        """x (rows, depth) -> (rows, columns)"""
        return torch.addmm(self.bias, x, self.weight)


def get_inputs():
    return [torch.rand(ROWS, DEPTH)]


def get_init_inputs():
    return [DEPTH, COLUMNS]
