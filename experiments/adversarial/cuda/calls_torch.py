"""Lets torch do it.

Problem: gpu_leaky_relu
Mechanism: Policy labels / calls torch
Twin: leaky_relu
Expect: any
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.leaky_relu(x, 0.1)
