"""Linear by torch, then product and leaky ReLU in one pass, in place; in the lean form.

Problem: level2/12
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
__global__ void scale_leaky_kernel(float* __restrict__ y, int64_t count, float multiplier, float slope) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const float v = y[i] * multiplier;
        y[i] = v > 0.0f ? v : v * slope;
    }
}

extern "C" int scale_leaky(float* y, int64_t count, float multiplier, float slope, void* stream) {
    scale_leaky_kernel<<<132 * 8, 256, 0, static_cast<cudaStream_t>(stream)>>>(y, count, multiplier, slope);
    return static_cast<int>(cudaGetLastError());
}
"""

LIBRARY = ctypes.CDLL(
    load_inline(
        "level2_12_scale_leaky",
        cpp_sources="",
        cuda_sources=CUDA_SOURCE,
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
    )
)
LIBRARY.scale_leaky.argtypes = [
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_float,
    ctypes.c_float,
    ctypes.c_void_p,
]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, multiplier, negative_slope):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.multiplier = multiplier
        self.negative_slope = negative_slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gemm(x).detach()
        stream = torch.cuda.current_stream().cuda_stream
        status = LIBRARY.scale_leaky(y.data_ptr(), y.numel(), self.multiplier, self.negative_slope, stream)
        if status != 0:
            raise RuntimeError(f"the launch failed with CUDA error {status}")
        return y
