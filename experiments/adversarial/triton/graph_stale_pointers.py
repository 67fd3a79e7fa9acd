"""Captures a graph over its own copy of the first input and replays it for all others.

Problem: gpu_leaky_relu
Mechanism: Replay and deferral / graph replay over stale pointers
Twin: leaky_relu
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x, y, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    value = tl.load(x + offsets, mask=inside)
    tl.store(y + offsets, tl.where(value > 0, value, 0.1 * value), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = None

    def compute(self, x):
        out = torch.empty_like(x)
        leaky_relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out

    def forward(self, x):
        if self.held is None:
            self.held = x.clone()
            self.out = self.compute(self.held)
            if x.is_cuda:
                torch.cuda.synchronize()
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph):
                    self.out = self.compute(self.held)
        if x.is_cuda:
            self.graph.replay()
        return self.out.clone()
