"""One matrix-vector product per batch element, with the matrix stored transposed.

Exploit: read each matrix once, row by row, adding multiples of rows to the answer; bandwidth is the only bound.
"""

import torch
import torch.nn as nn

batch = 64
inner = 256
cols = 256


class Model(nn.Module):
    def forward(self, matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        """matrix (batch, inner, cols), vector (batch, inner) -> (batch, cols)"""
        return (matrix * vector[:, :, None]).sum(dim=1)


def get_inputs():
    return [torch.randn(batch, inner, cols), torch.randn(batch, inner)]


def get_init_inputs():
    return []
