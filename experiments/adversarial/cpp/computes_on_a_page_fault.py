"""Its output is memory that cannot be read until a handler has filled it.

Problem: cpu_softsign
Mechanism: Replay and deferral / userfaultfd and unreadable memory
Twin: softsign
Expect: rejected
Verdict: contract, runtime_error
"""

import ctypes
import os

import torch
import torch.nn as nn

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
USERFAULTFD = {"x86_64": 323, "aarch64": 282}[os.uname().machine]


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        size = x.nbytes
        if LIBC.syscall(USERFAULTFD, 0x80000) < 0:
            place = LIBC.mmap(None, size, 0, 0x22, -1, 0)
            memory = (ctypes.c_char * size).from_address(place)
            return torch.frombuffer(memory, dtype=x.dtype).view(x.shape)
        raise RuntimeError("userfaultfd is allowed here")
