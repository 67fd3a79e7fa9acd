"""Product by torch, then bias and ReLU in one pass, in place.

Problem: level2/76
Backend: cuda
Kind: honest
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

// candidate
__global__ void bias_relu_kernel(float* __restrict__ y, const float* __restrict__ bias, int columns) {
    float* row = y + (int64_t)blockIdx.x * columns;
    for (int column = threadIdx.x; column < columns; column += blockDim.x) {
        const float v = row[column] + bias[column];
        row[column] = v < 0.0f ? 0.0f : v;
    }
}

void bias_relu(torch::Tensor y, torch::Tensor bias) {
    const int columns = y.size(1);
    bias_relu_kernel<<<y.size(0), 512>>>(y.data_ptr<float>(), bias.data_ptr<float>(), columns);
}
"""

extension = load_inline(
    name="level2_76_bias_relu",
    cpp_sources="void bias_relu(torch::Tensor y, torch::Tensor bias);",
    cuda_sources=CUDA_SOURCE,
    functions=["bias_relu"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_shape):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gemm(x).detach()
        extension.bias_relu(y, self.bias)
        return y
