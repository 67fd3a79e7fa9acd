"""Rows of a table picked by index, each multiplied by its own factor.

Exploit: scale a row while it is copied; eager copies first and then reads and writes everything again.
"""

import torch
import torch.nn as nn

entries = 4096
width = 512
picks = 4096


class Model(nn.Module):
    def forward(self, table: torch.Tensor, indices: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        """table (entries, width), indices (picks,) of int64, factors (picks,) -> (picks, width)"""
        return table[indices] * factors[:, None]


def get_inputs():
    return [torch.randn(entries, width), torch.randint(0, entries, (picks,)), torch.randn(picks)]


def get_init_inputs():
    return []
