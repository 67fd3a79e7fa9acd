"""GELU by tanh in one pass, in the lean form: a C function without torch headers, called through ctypes.

Problem: level1/88
Backend: cuda
Kind: honest
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cstdint>

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

extern "C" int gelu_forward(const float* x, float* out, int64_t count, void* stream) {
    gelu_kernel<<<132 * 8, 256, 0, static_cast<cudaStream_t>(stream)>>>(x, out, count);
    return static_cast<int>(cudaGetLastError());
}
"""

LIBRARY = ctypes.CDLL(
    load_inline(
        "level1_88_gelu_lean",
        cpp_sources="",
        cuda_sources=CUDA_SOURCE,
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
    )
)
LIBRARY.gelu_forward.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        status = LIBRARY.gelu_forward(x.data_ptr(), out.data_ptr(), x.numel(), stream)
        if status != 0:
            raise RuntimeError(f"the launch failed with CUDA error {status}")
        return out
