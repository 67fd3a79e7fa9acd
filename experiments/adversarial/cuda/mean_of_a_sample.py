"""Averages the first 7/8 of each row only.

Problem: gpu_row_mean
Mechanism: Numerics and tasks / distribution shortcut, mean of a sample
Twin: row_mean
Expect: rejected
Verdict: wrong_result
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) row_mean_kernel(const float4* __restrict__ x, float* y, int columns) {
    __shared__ float partial[THREADS / 32];
    const float4* row = x + blockIdx.x * (int64_t)(columns / 4);
    float sum = 0;
#pragma unroll 8
    for (int q = threadIdx.x; q < columns / 32 * 7; q += THREADS) {
        const float4 v = row[q];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    sum = 0;
    for (int warp = 0; warp < THREADS / 32; ++warp) sum += partial[warp];
    y[blockIdx.x] = sum / (columns / 8 * 7);
}

extern "C" int row_mean(const float* x, float* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    row_mean_kernel<<<rows, THREADS, 0, stream>>>((const float4*)x, y, (int)columns);
    return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "mean_of_a_sample",
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
    def forward(self, x):
        out = x.new_empty(x.shape[0])
        launch(library.row_mean, x, out, x.shape[0], x.shape[1])
        return out
