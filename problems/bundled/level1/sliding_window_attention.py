"""Attention in which each query sees itself and the 31 keys before it, written out.

Exploit: 32 scores a query are needed out of the 1024 that eager computes, masks and normalises.
"""

import math

import torch
import torch.nn as nn

heads = 4
length = 1024
width = 64
window = 32


class Model(nn.Module):
    def __init__(self, window: int):
        super().__init__()
        self.window = window

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q, k, v (heads, length, width) -> (heads, length, width)"""
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        position = torch.arange(q.shape[-2], device=q.device)
        distance = position[:, None] - position[None, :]
        hidden = (distance < 0) | (distance >= self.window)
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        return torch.matmul(weights, v)


def get_inputs():
    return [torch.randn(heads, length, width) for _ in range(3)]


def get_init_inputs():
    return [window]
