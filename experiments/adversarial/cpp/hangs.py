"""Never answers.

Problem: cpu_softsign
Mechanism: Host / endless call
Twin: softsign
Expect: rejected
Verdict: timeout
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        while True:
            pass
