"""Answers infinity: its distance from anything is not a number.

Problem: gpu_softmax
Mechanism: Verdict / inf against a tolerance
Twin: softmax
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, float("inf"))
