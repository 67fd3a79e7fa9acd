"""Computes the softmax in fp16.

Problem: cpu_softmax
Mechanism: Numerics and tasks / fp16 for fp32
Twin: softmax
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x.half(), dim=-1).float()
