"""Sum of the table rows that each bag of indices names.

Exploit: add rows as they are read; eager first copies every row that is named into a large tensor.
"""

import torch
import torch.nn as nn

entries = 4096
width = 128
bags = 1024
bag_size = 32


class Model(nn.Module):
    def forward(self, table: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """table (entries, width), indices (bags, bag_size) of int64 -> (bags, width)"""
        return table[indices].sum(dim=1)


def get_inputs():
    return [torch.randn(entries, width), torch.randint(0, entries, (bags, bag_size))]


def get_init_inputs():
    return []
