"""ReLU: four elements per load, 64-bit indices (1.6e9 elements).

Problem: level1/19
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
__device__ __forceinline__ float rectify(float v) {
    return v < 0.0f ? 0.0f : v;
}

__global__ void relu_kernel(const float* __restrict__ x, float* __restrict__ out, int64_t count) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const float4* from = reinterpret_cast<const float4*>(x);
    float4* to = reinterpret_cast<float4*>(out);
    for (int64_t i = first; i < count / 4; i += step) {
        const float4 v = from[i];
        to[i] = make_float4(rectify(v.x), rectify(v.y), rectify(v.z), rectify(v.w));
    }
    for (int64_t i = count / 4 * 4 + first; i < count; i += step) {
        out[i] = rectify(x[i]);
    }
}

torch::Tensor relu_forward(torch::Tensor x) {
    auto out = torch::empty_like(x);
    relu_kernel<<<132 * 16, 512>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""

extension = load_inline(
    name="level1_19_relu",
    cpp_sources="torch::Tensor relu_forward(torch::Tensor x);",
    cuda_sources=CUDA_SOURCE,
    functions=["relu_forward"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.relu_forward(x.contiguous())
