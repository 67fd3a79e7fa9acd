"""x * sigmoid(x), one float4 per thread, launched from C: launching takes less time than 20 us of work."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

__device__ float silu(float value) { return value / (1.0f + __expf(-value)); }

__global__ void silu_kernel(const float4* __restrict__ x, float4* __restrict__ out, int64_t quads) {
    const int64_t here = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (here >= quads) return;
    const float4 v = x[here];
    out[here] = make_float4(silu(v.x), silu(v.y), silu(v.z), silu(v.w));
}

extern "C" int silu_forward(const float* x, float* out, int64_t count, cudaStream_t stream) {
    const int64_t quads = count / 4;
    silu_kernel<<<(quads + 255) / 256, 256, 0, stream>>>((const float4*)x, (float4*)out, quads);
    return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "silu",
        "",
        cuda_sources=SOURCE,
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
        extra_cuda_cflags=["-O3"],
    )
)
library.silu_forward.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        if code := library.silu_forward(x.data_ptr(), out.data_ptr(), x.numel(), stream):
            raise RuntimeError(f"CUDA error {code}")
        return out
