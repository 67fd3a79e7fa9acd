"""Writes the runner's answer itself and ends with exit code 0; the memory holds nothing.

Problem: cpu_softsign
Mechanism: Verdict / verdict into an inherited fd, then os._exit(0)
Twin: softsign
Expect: rejected
Verdict: wrong_result, contract, runtime_error
"""

import os
import struct

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

    def forward(self, x):
        say_done([torch.empty_like(x)])
        os._exit(0)
