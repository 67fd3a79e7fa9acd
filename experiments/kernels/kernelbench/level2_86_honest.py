"""Linear by torch, then division and GELU in one pass, in place; in the lean form.

Problem: level2/86
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
__global__ void divide_gelu_kernel(float* __restrict__ y, int64_t count, float divisor) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const float v = y[i] / divisor;
        y[i] = 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));
    }
}

extern "C" int divide_gelu(float* y, int64_t count, float divisor, void* stream) {
    divide_gelu_kernel<<<132 * 8, 256, 0, static_cast<cudaStream_t>(stream)>>>(y, count, divisor);
    return static_cast<int>(cudaGetLastError());
}
"""

LIBRARY = ctypes.CDLL(
    load_inline(
        "level2_86_divide_gelu",
        cpp_sources="",
        cuda_sources=CUDA_SOURCE,
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
    )
)
LIBRARY.divide_gelu.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, input_size, output_size, divisor):
        super().__init__()
        self.linear = nn.Linear(input_size, output_size)
        self.divisor = divisor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).detach()
        stream = torch.cuda.current_stream().cuda_stream
        status = LIBRARY.divide_gelu(y.data_ptr(), y.numel(), self.divisor, stream)
        if status != 0:
            raise RuntimeError(f"the launch failed with CUDA error {status}")
        return y
