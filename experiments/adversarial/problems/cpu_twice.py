"""The same result twice."""

import torch
import torch.nn as nn

ROWS, COLUMNS = 1024, 2048


class Model(nn.Module):
    def forward(self, x):
        """x (rows, columns) -> two of the same shape"""
        y = torch.nn.functional.softsign(x)
        return y, y.clone()


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
