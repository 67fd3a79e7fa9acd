"""A problem that amplifies rounding, and an honest kernel for it in plain torch, for any device."""

from __future__ import annotations

RECURRENCE = """
import torch

class Model(torch.nn.Module):
    \"\"\"h = tanh(x_t + h W) over 48 steps: an error grows with each of them until it saturates.\"\"\"

    def __init__(self, gain):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64) * gain)

    def forward(self, x):
        h = torch.zeros(x.shape[1], 64, device=x.device)
        for row in x:
            h = torch.tanh(row + h @ self.weight)
        return h

def get_inputs():
    return [torch.randn(48, 256, 64)]

def get_init_inputs():
    return [0.22]
"""

BACKWARDS = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64) * gain)

    def forward(self, x):
        h = torch.zeros(x.shape[1], 64, device=x.device)
        for row in x:
            h = torch.tanh(row + h.flip(1) @ self.weight.flip(0))
        return h
"""
