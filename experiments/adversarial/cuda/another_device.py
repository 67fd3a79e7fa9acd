"""Computes on the second device, where there is one.

Problem: gpu_bias_gelu
Mechanism: Numerics and tasks / wrong device index
Twin: bias_gelu
Expect: rejected
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        other = torch.device("cuda", 1)
        return torch.nn.functional.gelu(x.to(other) + self.bias.to(other))
