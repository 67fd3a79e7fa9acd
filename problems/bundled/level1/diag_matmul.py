"""Product of a diagonal matrix, given by its diagonal, and a full matrix.

Exploit: scaling row i by the i-th number needs N*N multiplications; eager builds the matrix and does N*N*N.
"""

import torch
import torch.nn as nn

size = 640


class Model(nn.Module):
    def forward(self, diagonal: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        """diagonal (size,), matrix (size, size) -> (size, size)"""
        return torch.matmul(torch.diag(diagonal), matrix)


def get_inputs():
    return [torch.randn(size), torch.randn(size, size)]


def get_init_inputs():
    return []
