"""Raises an exception that would run code in whoever unpickles it.

Problem: gpu_bias_gelu
Mechanism: Verdict / exception with __reduce__
Twin: bias_gelu
Expect: rejected
Verdict: runtime_error
"""

import os

import torch
import torch.nn as nn


class Bomb(Exception):
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self):
        return (os.system, ("touch /tmp/kb-bomb",))


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        raise Bomb()
