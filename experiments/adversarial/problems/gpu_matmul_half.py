"""Product of two fp16 matrices; its own inputs, all positive, make long sums that fp16 cannot hold exactly.

Small: ROWS, DEPTH, COLUMNS = 128, 256, 128
"""

import torch
import torch.nn as nn

ROWS, DEPTH, COLUMNS = 2048, 8192, 2048


class Model(nn.Module):
    def forward(self, a, b):
        """a (rows, depth), b (depth, columns), both fp16 -> (rows, columns) in fp16"""
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(ROWS, DEPTH, dtype=torch.float16), torch.rand(DEPTH, COLUMNS, dtype=torch.float16)]


def get_init_inputs():
    return []
