"""Replaces the operators by which tensors are compared and answers zeros.

Problem: gpu_rmsnorm
Mechanism: Measuring tools / __eq__, __sub__ and __torch_function__ overridden
Twin: rmsnorm
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn


class Agreeable(torch.overrides.TorchFunctionMode):
    """Under this mode no two tensors differ."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        is_difference = getattr(function, "__name__", "") in ("sub", "__sub__", "rsub", "subtract")
        return torch.zeros_like(result) if is_difference else result


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))
        torch.Tensor.__eq__ = lambda left, right: torch.ones_like(left, dtype=torch.bool)
        torch.Tensor.__ne__ = lambda left, right: torch.zeros_like(left, dtype=torch.bool)
        self.mode = Agreeable()
        self.mode.__enter__()

    def forward(self, x):
        return torch.zeros_like(x)
