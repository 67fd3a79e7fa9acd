"""Running sum along each row.

Exploit: the chain of additions is latency-bound; several rows at once, or a scan inside vector registers, hide it.
"""

import torch
import torch.nn as nn

rows = 1024
cols = 2048


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, cols) -> (rows, cols)"""
        return torch.cumsum(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
