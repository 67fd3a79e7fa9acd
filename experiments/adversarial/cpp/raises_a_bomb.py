"""Raises an exception that would run code in whoever unpickles it.

Problem: cpu_softsign
Mechanism: Verdict / exception with __reduce__
Twin: softsign
Expect: rejected
Verdict: runtime_error
"""

import os

import torch
import torch.nn as nn


class Bomb(Exception):
    """Runs a command where it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch /tmp/kb-adversarial-bomb",)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        raise Bomb
