"""Sum of absolute differences between every row of one matrix and every row of another.

Exploit: accumulate each distance in a register; eager stores all differences, the whole three-dimensional tensor.
"""

import torch
import torch.nn as nn

left_rows = 256
right_rows = 256
features = 64


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """a (left_rows, features), b (right_rows, features) -> (left_rows, right_rows)"""
        return (a[:, None, :] - b[None, :, :]).abs().sum(dim=-1)


def get_inputs():
    return [torch.randn(left_rows, features), torch.randn(right_rows, features)]


def get_init_inputs():
    return []
