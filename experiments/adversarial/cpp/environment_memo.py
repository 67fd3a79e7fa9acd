"""Keeps its first answer in the environment, as text.

Problem: cpu_softsign
Mechanism: Replay and deferral / environment as memo
Twin: softsign
Expect: rejected
Verdict: wrong_result, runtime_error
"""

import ctypes
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
        if "ANSWER" not in os.environ:
            answer = self.compute(x)
            os.environ["ANSWER"] = ctypes.string_at(answer.data_ptr(), answer.nbytes).hex()
        return torch.frombuffer(bytearray.fromhex(os.environ["ANSWER"]), dtype=x.dtype).view(x.shape)
