"""GELU by tanh in one pass, in KernelBench's usual form (torch/extension.h).

Problem: level1/88
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
__device__ __forceinline__ float gelu(float v) {
    return 0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * (v * v * v))));
}

__global__ void gelu_kernel(const float* __restrict__ x, float* __restrict__ out, int64_t count) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const float4* from = reinterpret_cast<const float4*>(x);
    float4* to = reinterpret_cast<float4*>(out);
    for (int64_t i = first; i < count / 4; i += step) {
        const float4 v = from[i];
        to[i] = make_float4(gelu(v.x), gelu(v.y), gelu(v.z), gelu(v.w));
    }
    for (int64_t i = count / 4 * 4 + first; i < count; i += step) {
        out[i] = gelu(x[i]);
    }
}

torch::Tensor gelu_forward(torch::Tensor x) {
    auto out = torch::empty_like(x);
    gelu_kernel<<<132 * 8, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""

extension = load_inline(
    name="level1_88_gelu",
    cpp_sources="torch::Tensor gelu_forward(torch::Tensor x);",
    cuda_sources=CUDA_SOURCE,
    functions=["gelu_forward"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.gelu_forward(x.contiguous())
