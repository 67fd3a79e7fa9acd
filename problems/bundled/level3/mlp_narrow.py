"""Three-layer perceptron with narrow layers (16, 32, 32, 8) over many rows.

Exploit: all weights fit in L1, so rows pass through every layer without writing any of them out.
"""

import torch
import torch.nn as nn

rows = 65536
inputs = 16
hidden = 32
outputs = 8


class Model(nn.Module):
    """y = relu(relu(x @ w1 + b1) @ w2 + b2) @ w3 + b3, with a tanh at the end."""

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(inputs, hidden) / inputs**0.5)
        self.b1 = nn.Parameter(torch.randn(hidden) * 0.1)
        self.w2 = nn.Parameter(torch.randn(hidden, hidden) / hidden**0.5)
        self.b2 = nn.Parameter(torch.randn(hidden) * 0.1)
        self.w3 = nn.Parameter(torch.randn(hidden, outputs) / hidden**0.5)
        self.b3 = nn.Parameter(torch.randn(outputs) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (rows, inputs) -> (rows, outputs)."""
        h = torch.relu(x @ self.w1 + self.b1)
        h = torch.relu(h @ self.w2 + self.b2)
        return torch.tanh(h @ self.w3 + self.b3)


def get_inputs():
    return [torch.rand(rows, inputs)]


def get_init_inputs():
    return [inputs, hidden, outputs]
