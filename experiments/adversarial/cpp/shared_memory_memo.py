"""Keeps its answer in named shared memory; where there is none, in memory of its own.

Problem: cpu_softsign
Mechanism: Replay and deferral / shared memory as memo
Twin: softsign
Expect: rejected
Verdict: wrong_result, runtime_error
"""

import mmap
from multiprocessing import shared_memory

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))
        self.kept = None

    def compute(self, x):
        return nn.functional.softsign(torch.addcmul(self.bias, x, self.scale))

    def forward(self, x):
        if self.kept is None:
            try:
                place = shared_memory.SharedMemory("kb-answers", create=True, size=x.nbytes).buf
            except OSError:
                place = mmap.mmap(-1, x.nbytes)
            self.kept = torch.frombuffer(place, dtype=x.dtype, count=x.numel()).view(x.shape)
            self.kept.copy_(self.compute(x))
        return self.kept.clone()
