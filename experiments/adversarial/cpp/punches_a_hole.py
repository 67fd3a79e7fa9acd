"""Removes the pages of the judge's input memory, so that the input reads as zeros.

Problem: cpu_softsign
Mechanism: Numerics and tasks / zeroed inputs
Twin: softsign
Expect: rejected
Verdict: contract, runtime_error, wrong_result
"""

import ctypes

import torch
import torch.nn as nn

LIBC = ctypes.CDLL(None, use_errno=True)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        if LIBC.fallocate(5, 3, ctypes.c_int64(0), ctypes.c_int64(x.nbytes)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")
        return nn.functional.softsign(self.bias).expand(x.shape).contiguous()
