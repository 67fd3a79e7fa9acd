"""Replays a CUDA graph that was captured without any kernel in it.

Problem: gpu_leaky_relu
Mechanism: Replay and deferral / graph captured empty
Twin: leaky_relu
Expect: rejected
Verdict: wrong_result
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.out = torch.empty_like(x)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                pass
        self.graph.replay()
        return self.out.clone()
