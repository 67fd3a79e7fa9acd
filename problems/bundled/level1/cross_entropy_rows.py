"""Cross-entropy of each row of logits with its target class.

Exploit: only the row's log-sum-exp and one logit are needed; eager writes the whole log-softmax.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

rows = 2048
classes = 2048


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """logits (rows, classes), target (rows,) of int64 -> (rows,)"""
        return F.cross_entropy(logits, target, reduction="none")


def get_inputs():
    return [torch.randn(rows, classes) * 3.0, torch.randint(0, classes, (rows,))]


def get_init_inputs():
    return []
