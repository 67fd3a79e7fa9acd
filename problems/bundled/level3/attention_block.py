"""Transformer attention block: RMS normalisation, causal attention with 4 heads of 16, projection, residual.

Exploit: a sequence of 64 tokens with its scores stays in L2; eager makes some twenty small passes.
"""

import math

import torch
import torch.nn as nn

batch = 32
length = 64
width = 64
heads = 4
eps = 1e-6


class Model(nn.Module):
    """y = x + attention(rms_normalise(x) * gain) @ w_out."""

    def __init__(self, width: int, heads: int, eps: float):
        super().__init__()
        self.heads = heads
        self.eps = eps
        self.gain = nn.Parameter(torch.rand(width) + 0.5)
        self.w_qkv = nn.Parameter(torch.randn(width, 3 * width) / width**0.5)
        self.w_out = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (batch, length, width) -> (batch, length, width)."""
        n, t, c = x.shape
        h = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps) * self.gain
        q, k, v = (h @ self.w_qkv).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)
        future = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(n, t, c)
        return x + mixed @ self.w_out


def get_inputs():
    return [torch.randn(batch, length, width)]


def get_init_inputs():
    return [width, heads, eps]
