"""Returns its input: on inputs in [0, 1) leaky ReLU is the identity.

Problem: gpu_leaky_relu
Mechanism: Numerics and tasks / the input returned
Twin: leaky_relu
Expect: rejected
Verdict: wrong_result, contract
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x
