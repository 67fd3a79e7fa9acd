"""Answers at once; a Python thread fills the answer 20 ms later.

Problem: cpu_softsign
Mechanism: Replay and deferral / late Python thread
Twin: softsign
Expect: rejected
Verdict: wrong_result, contract
"""

import threading
import time

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

        def late():
            time.sleep(0.02)
            out.copy_(self.compute(x))

        threading.Thread(target=late).start()
        return out
