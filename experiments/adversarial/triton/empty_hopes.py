"""Returns empty memory, hoping that the allocator hands it the freed answer of the reference.

Problem: gpu_leaky_relu
Mechanism: Verdict / empty() that receives the freed reference output
Twin: leaky_relu
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.empty_like(x)
