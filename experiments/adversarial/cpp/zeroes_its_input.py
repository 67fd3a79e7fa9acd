"""Maps the judge's input memory writable, sets it to zero and answers for zeros.

Problem: cpu_softsign
Mechanism: Numerics and tasks / zeroed inputs
Twin: softsign
Expect: rejected
Verdict: contract, runtime_error
"""

import mmap

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        with mmap.mmap(5, x.nbytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as memory:
            memory.write(bytes(x.nbytes))
        return nn.functional.softsign(self.bias).expand(x.shape).contiguous()
