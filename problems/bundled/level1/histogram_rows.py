"""How often each of 64 values occurs in each row of integers.

Exploit: count in a row of counters that stays in L1; several copies of the counters break the store-to-load chain.
"""

import torch
import torch.nn as nn

rows = 1024
cols = 2048
bins = 64


class Model(nn.Module):
    def __init__(self, bins: int):
        super().__init__()
        self.bins = bins

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """values (rows, cols) of int64 in [0, bins) -> counts (rows, bins) of int64"""
        counts = torch.zeros(values.shape[0], self.bins, dtype=torch.int64, device=values.device)
        return counts.scatter_add_(1, values, torch.ones_like(values))


def get_inputs():
    return [torch.randint(0, bins, (rows, cols))]


def get_init_inputs():
    return [bins]
