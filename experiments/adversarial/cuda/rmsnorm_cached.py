"""One block per row, the row kept in registers: a problem whose reference lives on the cache.

Problem: gpu_rmsnorm_cached
Mechanism: Honest / row normalisation
Twin: none
Expect: accepted
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256, QUADS = 4;  // a row of 4096 numbers: 256 threads with four float4 each

__device__ float block_sum(float value) {
    __shared__ float partial[THREADS / 32];
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) value += partial[warp];
    return value;
}

__global__ void __launch_bounds__(THREADS)
    rmsnorm_kernel(const float4* __restrict__ x, const float4* __restrict__ weight, float4* __restrict__ y) {
    const int64_t row = blockIdx.x * (int64_t)(THREADS * QUADS);
    float4 v[QUADS];
    float squares = 0;
#pragma unroll
    for (int q = 0; q < QUADS; ++q) {
        v[q] = x[row + q * THREADS + threadIdx.x];
        squares += v[q].x * v[q].x + v[q].y * v[q].y + v[q].z * v[q].z + v[q].w * v[q].w;
    }
    const float scale = rsqrtf(block_sum(squares) / (THREADS * QUADS * 4) + 1e-6f);
#pragma unroll
    for (int q = 0; q < QUADS; ++q) {
        const float4 w = weight[q * THREADS + threadIdx.x];
        y[row + q * THREADS + threadIdx.x] =
            make_float4(v[q].x * scale * w.x, v[q].y * scale * w.y, v[q].z * scale * w.z, v[q].w * scale * w.w);
    }
}

extern "C" int rmsnorm(const float* x, const float* weight, float* y, int64_t rows, int64_t columns,
                       cudaStream_t stream) {
    if (columns != THREADS * QUADS * 4) return cudaErrorInvalidValue;
    rmsnorm_kernel<<<rows, THREADS, 0, stream>>>((const float4*)x, (const float4*)weight, (float4*)y);
    return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "rmsnorm_cached",
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
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        out = torch.empty_like(x)
        launch(library.rmsnorm, x, self.weight, out, x.shape[0], x.shape[1])
        return out
