"""Returns 1/2 for every row.

Problem: cpu_row_mean
Mechanism: Numerics and tasks / distribution shortcut, mean ~ 1/2
Twin: row_mean
Expect: rejected
Verdict: wrong_result
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.new_full((x.shape[0],), 0.5)
