"""Gated swish: x * sigmoid(x) * gate, element by element.

Exploit: three passes over memory fuse into one that reads two tensors and writes one.
"""

import torch
import torch.nn as nn

rows = 1024
cols = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """x, gate (rows, cols) -> (rows, cols)"""
        return x * torch.sigmoid(x) * gate


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []
