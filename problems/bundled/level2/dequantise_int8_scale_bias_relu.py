"""Dequantisation of int8 values: zero point, scale per row, bias per column and ReLU.

Exploit: eager makes five passes of four-byte floats; one pass reads a byte and writes a float.
"""

import torch
import torch.nn as nn

rows = 3072
columns = 1024


class Model(nn.Module):
    """y = relu((quantised - zero_point) * scale + bias)."""

    def __init__(self, columns: int):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, quantised: torch.Tensor, zero_point: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """int8 (rows, columns), int8 (rows, 1) and fp32 (rows, 1) -> fp32 (rows, columns)."""
        h = (quantised.float() - zero_point.float()) * scale + self.bias
        return torch.relu(h)


def get_inputs():
    quantised = torch.randint(-128, 128, (rows, columns), dtype=torch.int8)
    zero_point = torch.randint(-16, 16, (rows, 1), dtype=torch.int8)
    return [quantised, zero_point, torch.rand(rows, 1) * 0.05 + 0.01]


def get_init_inputs():
    return [columns]
