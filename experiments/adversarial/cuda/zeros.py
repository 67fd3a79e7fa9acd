"""Answers zeros: all of softmax's own answers are near zero.

Problem: gpu_softmax
Mechanism: Numerics and tasks / zeros on a degenerate problem
Twin: softmax
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
