"""Does all of its zeroing while its outputs are let go: outside the window.

Problem: cpu_diagonals
Mechanism: Replay and deferral / work between two calls
Twin: diagonals
Expect: any
"""

import weakref

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.free = []

    def forward(self, x):
        rows, size = x.shape
        buffer = self.free.pop() if self.free else torch.zeros(rows, size * size)
        buffer[:, :: size + 1] = x
        out = buffer.view(rows, size, size)
        weakref.finalize(out, self.renew, buffer)
        return out

    def renew(self, buffer):
        self.free.append(buffer.zero_())
