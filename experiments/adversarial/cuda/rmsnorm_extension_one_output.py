"""One static output tensor for all calls: later calls overwrite earlier answers.

Problem: gpu_rmsnorm
Mechanism: Numerics and tasks / alias of an earlier output
Twin: rmsnorm
Expect: rejected
Verdict: contract, wrong_result
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
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


torch::Tensor rmsnorm(torch::Tensor x, torch::Tensor weight) {
    static torch::Tensor y = torch::empty_like(x);
    rmsnorm_kernel<<<x.size(0), THREADS>>>((const float4*)x.data_ptr<float>(),
                                           (const float4*)weight.data_ptr<float>(), (float4*)y.data_ptr<float>());
    return y;
}
"""

extension = load_inline(
    "rmsnorm_extension_one_output",
    "torch::Tensor rmsnorm(torch::Tensor x, torch::Tensor weight);",
    cuda_sources=SOURCE,
    functions=["rmsnorm"],
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return extension.rmsnorm(x, self.weight)
