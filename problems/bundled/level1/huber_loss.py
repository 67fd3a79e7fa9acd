"""Mean Huber loss of each row, with threshold 1, written out.

Exploit: six passes and as many temporaries fuse into one read of both tensors and one number a row.
"""

import torch
import torch.nn as nn

rows = 1024
cols = 1024


class Model(nn.Module):
    def forward(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """prediction, target (rows, cols) -> (rows,)"""
        distance = torch.abs(prediction - target)
        loss = torch.where(distance < 1.0, 0.5 * distance * distance, distance - 0.5)
        return loss.mean(dim=-1)


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []
