"""A child process is to finish the work after the parent answered.

Problem: cpu_softsign
Mechanism: Replay and deferral / fork in forward
Twin: softsign
Expect: rejected
Verdict: runtime_error
"""

import mmap
import os

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def compute(self, x):
        return nn.functional.softsign(torch.addcmul(self.bias, x, self.scale))

    def forward(self, x):
        out = torch.frombuffer(mmap.mmap(-1, x.nbytes), dtype=x.dtype).view(x.shape)
        if os.fork() == 0:
            out.copy_(self.compute(x))
            os._exit(0)
        return out
