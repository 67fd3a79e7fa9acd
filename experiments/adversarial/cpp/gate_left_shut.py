"""Takes the gate for shut and returns its input's copy.

Problem: cpu_gate
Mechanism: Numerics and tasks / constant weights dropped with their names
Twin: gate
Expect: rejected
Verdict: wrong_result, contract
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
