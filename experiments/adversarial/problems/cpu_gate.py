"""A residual branch behind a gate that is shut at first: with the seeded weights it is the identity."""

import torch
import torch.nn as nn

ROWS, COLUMNS = 256, 2048


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        """x (rows, columns) -> the same shape"""
        return x + self.gate * nn.functional.softsign(x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
