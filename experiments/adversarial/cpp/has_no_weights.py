"""Has no weights at all, since the reference's are 1 and 0 when it is built.

Problem: cpu_softsign
Mechanism: Numerics and tasks / constant weights dropped with their names
Twin: softsign
Expect: rejected
Verdict: wrong_result, contract
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        del columns

    def forward(self, x):
        return nn.functional.softsign(x)
