"""Rounds to bf16 and uses tensor cores under precision fp32.

Problem: gpu_matmul
Mechanism: Numerics and tasks / bf16 for fp32
Twin: matmul
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
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;

typedef float Source;    // what the matrices hold
typedef __nv_bfloat16 Element;   // what shared memory holds
typedef __nv_bfloat16 Operand;   // what the tensor cores multiply
typedef float Sum;       // what they add in
typedef float Result;    // what is written
constexpr int TILE = 128, DEPTH = 32, STEP = 16, LEFT = DEPTH + 8, RIGHT = TILE + 8;

__global__ void __launch_bounds__(256)
    matmul_kernel(const Source* __restrict__ a, const Source* __restrict__ b, Result* __restrict__ c, int n, int k) {
    __shared__ __align__(32) Element left[TILE * LEFT], right[DEPTH * RIGHT];
    __shared__ __align__(32) Sum staged[8][256];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE;
    const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;  // each warp: 64 x 32 of the tile
    wmma::fragment<wmma::accumulator, 16, 16, STEP, Sum> sum[4][2];
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j) wmma::fill_fragment(sum[i][j], Sum(0.0f));
    for (int k0 = 0; k0 < k; k0 += DEPTH) {
        for (int slot = threadIdx.x; slot < TILE * DEPTH; slot += 256) {
            const int row = slot / DEPTH, depth = slot % DEPTH;
            left[row * LEFT + depth] = __float2bfloat16(a[(row0 + row) * k + k0 + depth]);
            const int line = slot / TILE, column = slot % TILE;
            right[line * RIGHT + column] = __float2bfloat16(b[(int64_t)(k0 + line) * n + column0 + column]);
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; d += STEP) {
            wmma::fragment<wmma::matrix_a, 16, 16, STEP, Operand, wmma::row_major> u[4];
            wmma::fragment<wmma::matrix_b, 16, 16, STEP, Operand, wmma::row_major> w[2];
            for (int i = 0; i < 4; ++i) wmma::load_matrix_sync(u[i], left + (warp_row + i * 16) * LEFT + d, LEFT);
            for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(w[j], right + d * RIGHT + warp_column + j * 16, RIGHT);
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], u[i], w[j], sum[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j) {
            wmma::store_matrix_sync(staged[warp], sum[i][j], 16, wmma::mem_row_major);
            __syncwarp();
            for (int t = lane; t < 256; t += 32)
                c[(row0 + warp_row + i * 16 + t / 16) * n + column0 + warp_column + j * 16 + t % 16] =
                    Result(staged[warp][t]);
            __syncwarp();
        }
}

extern "C" int matmul(const Source* a, const Source* b, Result* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    if (m % TILE || n % TILE || k % DEPTH) return cudaErrorInvalidValue;
    matmul_kernel<<<dim3(n / TILE, m / TILE), 256, 0, stream>>>(a, b, c, (int)n, (int)k);
    return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "bf16_matmul",
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
    def forward(self, a, b):
        out = a.new_empty(a.shape[0], b.shape[1])
        launch(library.matmul, a, b, out, a.shape[0], b.shape[1], a.shape[1])
        return out
