"""The usual form: torch/extension.h and pybind.

Problem: gpu_bias_gelu
Mechanism: Honest / torch extension
Twin: none
Expect: accepted
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__device__ float gelu(float value) { return 0.5f * value * (1 + erff(value * 0.70710678f)); }

__global__ void bias_gelu_kernel(const float4* __restrict__ x, const float4* __restrict__ bias,
                                 float4* __restrict__ y, int64_t quads, int columns) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= quads) return;
    const float4 v = x[i], b = bias[i % (columns / 4)];
    y[i] = make_float4(gelu(v.x + b.x), gelu(v.y + b.y), gelu(v.z + b.z), gelu(v.w + b.w));
}


torch::Tensor bias_gelu(torch::Tensor x, torch::Tensor bias) {
    torch::Tensor y = torch::empty_like(x);
    const int64_t quads = x.numel() / 4;
    bias_gelu_kernel<<<(quads + 255) / 256, 256>>>((const float4*)x.data_ptr<float>(),
                                                   (const float4*)bias.data_ptr<float>(), (float4*)y.data_ptr<float>(),
                                                   quads, (int)x.size(1));
    return y;
}
"""

extension = load_inline(
    "bias_gelu_extension",
    "torch::Tensor bias_gelu(torch::Tensor x, torch::Tensor bias);",
    cuda_sources=SOURCE,
    functions=["bias_gelu"],
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return extension.bias_gelu(x, self.bias)
