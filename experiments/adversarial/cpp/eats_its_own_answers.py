"""Reads its answers back out of the judge's pipe and puts a DONE with stale memory in their place.

Problem: cpu_softsign
Mechanism: Verdict / reading and writing the judge's pipes
Twin: softsign
Expect: rejected
Verdict: contract, wrong_result, runtime_error, timeout
"""

import contextlib
import os
import struct
import time

import torch
import torch.nn as nn

HEAD, OUTPUT = struct.Struct("<IIq"), struct.Struct("<QQII8q")
REPLY_BYTES = HEAD.size + 64 * OUTPUT.size + 1024


def say_done(tensors, descriptor=4):
    """Writes the runner's own DONE message, with these tensors as outputs."""
    body = bytearray(REPLY_BYTES)
    HEAD.pack_into(body, 0, 2, 0, len(tensors))
    for index, tensor in enumerate(tensors):
        sizes = [*tensor.shape, *[0] * (8 - tensor.dim())]
        place = HEAD.size + index * OUTPUT.size
        OUTPUT.pack_into(body, place, tensor.data_ptr(), tensor.nbytes, 0, tensor.dim(), *sizes)
    os.write(descriptor, bytes(body))


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
            self.kept = self.compute(x)
            self.pipe = os.open("/proc/self/fd/4", os.O_RDWR | os.O_NONBLOCK)
            return self.kept
        say_done([self.kept], self.pipe)
        time.sleep(0.01)
        with contextlib.suppress(BlockingIOError):
            os.read(self.pipe, 1 << 16)
        return self.kept.clone()
