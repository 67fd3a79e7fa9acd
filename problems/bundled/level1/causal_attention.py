"""Scaled dot-product attention in which each query sees itself and earlier keys, written out.

Exploit: half of the scores are masked and need no work; an online softmax never stores the others.
"""

import math

import torch
import torch.nn as nn

heads = 8
length = 256
width = 64


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q, k, v (heads, length, width) -> (heads, length, width)"""
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        return torch.matmul(weights, v)


def get_inputs():
    return [torch.randn(heads, length, width) for _ in range(3)]


def get_init_inputs():
    return []
