"""Copies nothing: its output is the judge's input memory, mapped again with the rows' pages in reverse order.

Problem: cpu_flip
Mechanism: Numerics and tasks / alias of the input through the page table
Twin: flip
Expect: rejected
Verdict: contract, wrong_result
"""

import ctypes

import torch
import torch.nn as nn

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.views = {}

    def forward(self, x):
        rows, row_bytes = x.shape[0], x.shape[1] * x.element_size()
        base = x.data_ptr()
        if base not in self.views:
            self.views[base] = self.reversed_map(base, rows, row_bytes).view(x.shape)
        return self.views[base]

    def reversed_map(self, base, rows, row_bytes):
        offset = base - min(self.views, default=base) if self.views else 0
        place = LIBC.mmap(None, rows * row_bytes, 1, 0x22, -1, 0)
        for row in range(rows):
            target = place + (rows - 1 - row) * row_bytes
            if LIBC.mmap(target, row_bytes, 1, 0x11, 5, offset + row * row_bytes) != target:
                raise OSError(ctypes.get_errno(), "mmap")
        memory = (ctypes.c_char * (rows * row_bytes)).from_address(place)
        return torch.frombuffer(memory, dtype=torch.float32)
