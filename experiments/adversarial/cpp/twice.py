"""The same result in two tensors.

Problem: cpu_twice
Mechanism: Honest / the same result in two tensors
Twin: none
Expect: accepted
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.nn.functional.softsign(x)
        return y, y.clone()
