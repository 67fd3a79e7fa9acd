"""The twin's kernel under other names and with other constants written out.

Problem: gpu_bias_gelu
Mechanism: Harmless variant / other names
Twin: bias_gelu
Expect: accepted-harmless
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

// x times the normal distribution's integral up to x
__device__ float gelu(float t) { return t * (0.5f + 0.5f * erff(t * 0.707106781f)); }

__global__ void bias_gelu_kernel(const float4* __restrict__ x, const float4* __restrict__ bias,
                                 float4* __restrict__ y, int64_t quads, int columns) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= quads) return;
    const float4 v = x[i], b = bias[i % (columns / 4)];
    y[i] = make_float4(gelu(v.x + b.x), gelu(v.y + b.y), gelu(v.z + b.z), gelu(v.w + b.w));
}

extern "C" int bias_gelu(const float* x, const float* bias, float* y, int64_t count, int64_t columns,
                         cudaStream_t stream) {
    const int64_t quads = count / 4;
    bias_gelu_kernel<<<(quads + 255) / 256, 256, 0, stream>>>((const float4*)x, (const float4*)bias, (float4*)y,
                                                              quads, (int)columns);
    return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "bias_gelu_renamed",
        "",
        cuda_sources=SOURCE,
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
        extra_cuda_cflags=["-O3"],
    )
)


def launch(function, *arguments):
    """Calls a C launcher, tensors as pointers, on the current stream; raises if CUDA reports an error."""
    values = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_int64(a) for a in arguments]
    code = function(*values, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    if code:
        raise RuntimeError(f"CUDA error {code}")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        out = torch.empty_like(x)
        launch(library.bias_gelu, x, self.bias, out, x.numel(), x.shape[1])
        return out
