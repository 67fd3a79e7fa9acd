"""Starts threads until none can be started, then answers zeros.

Problem: cpu_softsign
Mechanism: Host / thread bomb
Twin: softsign
Expect: rejected
Verdict: wrong_result, contract, runtime_error, timeout
"""

import contextlib
import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        with contextlib.suppress(RuntimeError):
            for _ in range(2000):
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        return torch.zeros_like(x)
