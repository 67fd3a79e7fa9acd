"""Tries to end the process that watches it.

Problem: cpu_softsign
Mechanism: Host / kill the parent
Twin: softsign
Expect: rejected
Verdict: runtime_error, wrong_result
"""

import os
import signal

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        os.kill(os.getppid(), signal.SIGKILL)
        return torch.zeros_like(x)
