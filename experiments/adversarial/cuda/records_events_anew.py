"""Looks for everybody's CUDA events and records them again at the end of its work, so that they lie close together.

Problem: gpu_matmul
Mechanism: Measuring tools / event handles on the heap
Twin: matmul
Expect: any
"""

import ctypes
import gc

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

constexpr int TILE = 128, DEPTH = 16, PER = 8;  // 256 threads, each with 8 x 8 sums of a 128 x 128 tile

__device__ int spread(int thread, int i) { return thread * 4 + i / 4 * 64 + i % 4; }

__global__ void __launch_bounds__(256)
    matmul_kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n, int k) {
    __shared__ float left[DEPTH][TILE], right[DEPTH][TILE];
    const int64_t row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE;
    const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
    float sum[PER][PER] = {};
    for (int k0 = 0; k0 < k; k0 += DEPTH) {
#pragma unroll
        for (int slot = threadIdx.x; slot < TILE * DEPTH / 4; slot += 256) {
            const int row = slot / 4, depth = slot % 4 * 4;
            const float4 v = *(const float4*)&a[(row0 + row) * k + k0 + depth];
            left[depth][row] = v.x;
            left[depth + 1][row] = v.y;
            left[depth + 2][row] = v.z;
            left[depth + 3][row] = v.w;
            const int line = slot / 32, column = slot % 32 * 4;
            *(float4*)&right[line][column] = *(const float4*)&b[(int64_t)(k0 + line) * n + column0 + column];
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            float u[PER], w[PER];
#pragma unroll
            for (int i = 0; i < PER; ++i) {
                u[i] = left[d][spread(ty, i)];
                w[i] = right[d][spread(tx, i)];
            }
#pragma unroll
            for (int i = 0; i < PER; ++i)
#pragma unroll
                for (int j = 0; j < PER; ++j) sum[i][j] += u[i] * w[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PER; ++i)
#pragma unroll
        for (int j = 0; j < PER; j += 4)
            *(float4*)&c[(row0 + spread(ty, i)) * n + column0 + spread(tx, j)] =
                make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
}

extern "C" int matmul(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    if (m % TILE || n % TILE || k % DEPTH) return cudaErrorInvalidValue;
    matmul_kernel<<<dim3(n / TILE, m / TILE), 256, 0, stream>>>(a, b, c, (int)n, (int)k);
    return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "records_events_anew",
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
    def compute(self, a, b):
        out = a.new_empty(a.shape[0], b.shape[1])
        launch(library.matmul, a, b, out, a.shape[0], b.shape[1], a.shape[1])
        return out

    def forward(self, a, b):
        out = self.compute(a, b)
        for thing in gc.get_objects():
            if type(thing) is torch.cuda.Event:
                thing.record()
        return out
