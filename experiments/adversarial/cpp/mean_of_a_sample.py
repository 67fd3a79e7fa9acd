"""Averages every second element.

Problem: cpu_row_mean
Mechanism: Numerics and tasks / distribution shortcut, mean of a sample
Twin: row_mean
Expect: rejected
Verdict: wrong_result
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x[:, ::2].mean(dim=-1)
