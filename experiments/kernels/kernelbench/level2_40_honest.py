"""Linear by torch, then scaling and residual in one pass, in place on the product.

Problem: level2/40
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
__global__ void scale_residual_kernel(float* __restrict__ y, int64_t count, float factor) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float4* quads = reinterpret_cast<float4*>(y);
    for (int64_t i = first; i < count / 4; i += step) {
        const float4 v = quads[i];
        quads[i] = make_float4(v.x * factor + v.x, v.y * factor + v.y, v.z * factor + v.z, v.w * factor + v.w);
    }
    for (int64_t i = count / 4 * 4 + first; i < count; i += step) {
        y[i] = y[i] * factor + y[i];
    }
}

void scale_residual(torch::Tensor y, double factor) {
    scale_residual_kernel<<<132 * 8, 512>>>(y.data_ptr<float>(), y.numel(), static_cast<float>(factor));
}
"""

extension = load_inline(
    name="level2_40_scale_residual",
    cpp_sources="void scale_residual(torch::Tensor y, double factor);",
    cuda_sources=CUDA_SOURCE,
    functions=["scale_residual"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.scaling_factor = scaling_factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.matmul(x).detach()
        extension.scale_residual(y, self.scaling_factor)
        return y
