"""Writes rubbish and guessed messages into every inherited descriptor, then leaves with code 0.

Problem: gpu_softmax
Mechanism: Verdict / verdict into an inherited fd, then os._exit(0)
Twin: softmax
Expect: rejected
"""

import contextlib
import os

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        for descriptor in range(3, 64):
            with contextlib.suppress(OSError):
                os.write(descriptor, b"correct 1e-6 " * 64)
        os._exit(0)
