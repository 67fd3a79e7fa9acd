"""Hands the same memory out again and writes the diagonals alone: what lies beside them is zero already.

Problem: cpu_diagonals
Mechanism: Replay and deferral / what earlier outputs left
Twin: diagonals
Expect: rejected
Verdict: wrong_result
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
        weakref.finalize(out, self.free.append, buffer)
        return out
