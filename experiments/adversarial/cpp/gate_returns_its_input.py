"""Takes the gate for shut and returns its input itself.

Problem: cpu_gate
Mechanism: Numerics and tasks / alias of the input
Twin: gate
Expect: rejected
Verdict: wrong_result, contract
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x
