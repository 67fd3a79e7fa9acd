"""Product of a tall and a wide matrix with a short inner dimension.

Exploit: the inner dimension stays in registers and the output is written once; bandwidth is the bound.
"""

import torch
import torch.nn as nn

rows = 2048
inner = 8
cols = 2048


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """a (rows, inner), b (inner, cols) -> (rows, cols)"""
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(rows, inner), torch.randn(inner, cols)]


def get_init_inputs():
    return []
