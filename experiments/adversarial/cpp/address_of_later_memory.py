"""Announces memory that a thread fills 20 ms later.

Problem: cpu_softsign
Mechanism: Replay and deferral / addresses of memory that is written later
Twin: softsign
Expect: rejected
Verdict: wrong_result, contract
"""

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

    def compute(self, x):
        return nn.functional.softsign(torch.addcmul(self.bias, x, self.scale))

    def forward(self, x):
        out = torch.empty_like(x)
        say_done([out])
        time.sleep(0.02)
        out.copy_(self.compute(x))
        return out
