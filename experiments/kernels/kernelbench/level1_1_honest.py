"""Square matrix product in fp32: tiles of 128 x 128 in shared memory, 8 x 8 results per thread.

Problem: level1/1
Backend: cuda
Kind: honest
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

constexpr int TILE = 128;
constexpr int DEPTH = 16;
constexpr int THREADS = 256;

// candidate
__global__ void __launch_bounds__(THREADS) matmul_kernel(const float* __restrict__ a, const float* __restrict__ b,
                                                         float* __restrict__ c, int n, int k) {
    __shared__ __align__(16) float left[DEPTH][TILE + 4];
    __shared__ __align__(16) float right[DEPTH][TILE];
    const int column = threadIdx.x % 16, row = threadIdx.x / 16;
    const float* a_tile = a + (int64_t)blockIdx.y * TILE * k;
    const float* b_tile = b + (int64_t)blockIdx.x * TILE;
    float sums[8][8] = {};
    for (int start = 0; start < k; start += DEPTH) {
        for (int piece = threadIdx.x; piece < TILE * DEPTH / 4; piece += THREADS) {
            const int r = piece / 4, d = piece % 4 * 4;
            const float4 v = *reinterpret_cast<const float4*>(a_tile + (int64_t)r * k + start + d);
            left[d][r] = v.x;
            left[d + 1][r] = v.y;
            left[d + 2][r] = v.z;
            left[d + 3][r] = v.w;
            const int depth = piece / 32, q = piece % 32 * 4;
            *reinterpret_cast<float4*>(&right[depth][q]) =
                *reinterpret_cast<const float4*>(b_tile + (int64_t)(start + depth) * n + q);
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            float from_left[8], from_right[8];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                from_left[i] = left[d][row * 4 + i];
                from_left[i + 4] = left[d][64 + row * 4 + i];
                from_right[i] = right[d][column * 4 + i];
                from_right[i + 4] = right[d][64 + column * 4 + i];
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    sums[i][j] = fmaf(from_left[i], from_right[j], sums[i][j]);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int64_t r = (int64_t)blockIdx.y * TILE + (i / 4) * 64 + row * 4 + i % 4;
        float* target = c + r * n + (int64_t)blockIdx.x * TILE + column * 4;
        *reinterpret_cast<float4*>(target) = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
        *reinterpret_cast<float4*>(target + 64) = make_float4(sums[i][4], sums[i][5], sums[i][6], sums[i][7]);
    }
}

torch::Tensor matmul_forward(torch::Tensor a, torch::Tensor b) {
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    TORCH_CHECK(m % TILE == 0 && n % TILE == 0 && k % DEPTH == 0, "sizes must be multiples of the tile");
    auto c = torch::empty({m, n}, a.options());
    const dim3 grid(n / TILE, m / TILE);
    matmul_kernel<<<grid, THREADS>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n, k);
    return c;
}
"""

extension = load_inline(
    name="level1_1_matmul",
    cpp_sources="torch::Tensor matmul_forward(torch::Tensor a, torch::Tensor b);",
    cuda_sources=CUDA_SOURCE,
    functions=["matmul_forward"],
)


class ModelNew(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return extension.matmul_forward(A.contiguous(), B.contiguous())
