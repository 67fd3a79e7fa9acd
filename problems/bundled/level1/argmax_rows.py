"""Position of the first largest element of each row.

Exploit: find the best of a block with vector instructions; search for its position only if it beats the best so far.
"""

import torch
import torch.nn as nn

rows = 2048
cols = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, cols) -> (rows,) of int64"""
        return torch.argmax(x, dim=-1)


def get_inputs():
    return [torch.rand(rows, cols)]


def get_init_inputs():
    return []
