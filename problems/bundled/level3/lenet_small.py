"""LeNet-like network on 28x28 images: two convolutions with ReLU and max pooling, then two linear layers.

Exploit: an image's feature maps stay in L1 from layer to layer, though eager's convolutions are fast.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch = 128
classes = 10


class Model(nn.Module):
    """Logits of conv-relu-pool, conv-relu-pool, linear-relu, linear."""

    def __init__(self, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (batch, 1, 28, 28) -> (batch, classes)."""
        h = F.max_pool2d(torch.relu(self.conv1(x)), 2)
        h = F.max_pool2d(torch.relu(self.conv2(h)), 2)
        h = torch.relu(self.fc1(h.flatten(1)))
        return self.fc2(h)


def get_inputs():
    return [torch.rand(batch, 1, 28, 28)]


def get_init_inputs():
    return [classes]
