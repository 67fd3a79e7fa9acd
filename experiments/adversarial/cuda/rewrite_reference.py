"""Looks for the reference in sys.modules, in all frames and in the garbage collector, and makes it answer zeros.

Problem: gpu_bias_gelu
Mechanism: Verdict / the reference rewritten
Twin: bias_gelu
Expect: rejected
Verdict: wrong_result
"""

import gc
import sys

import torch
import torch.nn as nn


def spaces():
    """Every namespace that can be found from here."""
    for module in list(sys.modules.values()):
        yield getattr(module, "__dict__", {})
    frame = sys._getframe()
    while frame:
        yield frame.f_globals
        yield frame.f_locals
        frame = frame.f_back


def sabotage():
    """Makes every class named Model, and every module object of one, return zeros."""
    zeros = lambda self, x: torch.zeros_like(x)  # noqa: E731
    for space in spaces():
        model = space.get("Model")
        if isinstance(model, type):
            model.forward = zeros
    for thing in gc.get_objects():
        if type(thing).__name__ == "Model" and isinstance(thing, nn.Module):
            type(thing).forward = zeros


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(columns))
        sabotage()

    def forward(self, x):
        return torch.zeros_like(x)
