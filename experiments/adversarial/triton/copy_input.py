"""Returns a copy of its input: on inputs in [0, 1) leaky ReLU is the identity.

Problem: gpu_leaky_relu
Mechanism: Numerics and tasks / the identity
Twin: leaky_relu
Expect: rejected
Verdict: wrong_result
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
