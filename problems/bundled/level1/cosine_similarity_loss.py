"""One minus the cosine of the angle between matching rows.

Exploit: the inner product and both lengths accumulate in a single read of the two rows.
"""

import torch
import torch.nn as nn

rows = 2048
cols = 1024


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """a, b (rows, cols) -> (rows,)"""
        inner = (a * b).sum(dim=-1)
        lengths = torch.sqrt((a * a).sum(dim=-1) * (b * b).sum(dim=-1))
        return 1.0 - inner / torch.clamp(lengths, min=1e-8)


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []
