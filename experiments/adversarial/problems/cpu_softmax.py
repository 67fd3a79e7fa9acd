"""Softmax of each row; on its own inputs every answer is near 1/1024."""

import torch
import torch.nn as nn

ROWS, COLUMNS = 256, 1024


class Model(nn.Module):
    def forward(self, x):
        """x (rows, columns) -> the same shape"""
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return []
