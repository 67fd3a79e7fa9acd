"""Returns 1/n for every element.

Problem: cpu_softmax
Mechanism: Numerics and tasks / distribution shortcut, softmax ~ 1/n
Twin: softmax
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, 1 / x.shape[1])
