"""Minimal gated recurrent network: one update gate and one candidate state per time step.

Exploit: eager pays about fifteen operator calls per step; sequences are independent and fit in L1.
"""

import torch
import torch.nn as nn

batch = 16
length = 128
inputs = 32
hidden = 32


class Model(nn.Module):
    """h = (1 - z) * h + z * tanh(x @ wc + h @ uc + bc), with z = sigmoid(x @ wz + h @ uz + bz)."""

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.wz = nn.Parameter(torch.randn(inputs, hidden) / inputs**0.5)
        self.uz = nn.Parameter(torch.randn(hidden, hidden) / hidden**0.5)
        self.bz = nn.Parameter(torch.randn(hidden) * 0.1)
        self.wc = nn.Parameter(torch.randn(inputs, hidden) / inputs**0.5)
        self.uc = nn.Parameter(torch.randn(hidden, hidden) / hidden**0.5)
        self.bc = nn.Parameter(torch.randn(hidden) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (batch, length, inputs) -> every state, (batch, length, hidden)."""
        h = x.new_zeros(x.shape[0], self.bz.shape[0])
        states = []
        for t in range(x.shape[1]):
            z = torch.sigmoid(x[:, t] @ self.wz + h @ self.uz + self.bz)
            candidate = torch.tanh(x[:, t] @ self.wc + h @ self.uc + self.bc)
            h = (1.0 - z) * h + z * candidate
            states.append(h)
        return torch.stack(states, dim=1)


def get_inputs():
    return [torch.randn(batch, length, inputs)]


def get_init_inputs():
    return [inputs, hidden]
