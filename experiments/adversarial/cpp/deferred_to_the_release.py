"""Computes only when its output is let go, after the clock has stopped.

Problem: cpu_softsign
Mechanism: Replay and deferral / work deferred to the output's destructor
Twin: softsign
Expect: rejected
Verdict: wrong_result
"""

import ctypes
import weakref

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
        out = torch.empty_like(x)
        address, shape = out.data_ptr(), x.shape
        weakref.finalize(out, self.fill, address, x, shape)
        return out

    def fill(self, address, x, shape):
        answer = self.compute(x)
        ctypes.memmove(address, answer.data_ptr(), answer.nbytes)
