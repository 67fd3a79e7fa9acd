"""A C++ map from the input's address to the first answer for it.

Problem: gpu_softmax
Mechanism: Replay and deferral / native memo on data_ptr
Twin: softmax
Expect: rejected
Verdict: wrong_result
"""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <map>
#include <cuda_runtime.h>

constexpr int THREADS = 256, QUADS = 4;  // a row of 4096 numbers: 256 threads with four float4 each

template <bool IS_MAX>
__device__ float block_reduce(float value) {
    __shared__ float partial[THREADS / 32];
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(~0u, value, step);
        value = IS_MAX ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[0];
    for (int warp = 1; warp < THREADS / 32; ++warp)
        value = IS_MAX ? fmaxf(value, partial[warp]) : value + partial[warp];
    return value;
}

__global__ void __launch_bounds__(THREADS) softmax_kernel(const float4* __restrict__ x, float4* __restrict__ y) {
    const int64_t row = blockIdx.x * (int64_t)(THREADS * QUADS);
    float4 v[QUADS];
    float peak = -INFINITY, sum = 0;
#pragma unroll
    for (int q = 0; q < QUADS; ++q) {
        v[q] = x[row + q * THREADS + threadIdx.x];
        peak = fmaxf(peak, fmaxf(fmaxf(v[q].x, v[q].y), fmaxf(v[q].z, v[q].w)));
    }
    peak = block_reduce<true>(peak);
#pragma unroll
    for (int q = 0; q < QUADS; ++q) {
        v[q] = make_float4(expf(v[q].x - peak), expf(v[q].y - peak), expf(v[q].z - peak), expf(v[q].w - peak));
        sum += v[q].x + v[q].y + v[q].z + v[q].w;
    }
    const float scale = 1 / block_reduce<false>(sum);
#pragma unroll
    for (int q = 0; q < QUADS; ++q)
        y[row + q * THREADS + threadIdx.x] =
            make_float4(v[q].x * scale, v[q].y * scale, v[q].z * scale, v[q].w * scale);
}


torch::Tensor softmax(torch::Tensor x) {
    static std::map<void*, torch::Tensor> memo;
    auto found = memo.find(x.data_ptr());
    if (found != memo.end()) return found->second.clone();
    torch::Tensor y = torch::empty_like(x);
    softmax_kernel<<<x.size(0), THREADS>>>((const float4*)x.data_ptr<float>(), (float4*)y.data_ptr<float>());
    memo[x.data_ptr()] = y;
    return y;
}
"""

extension = load_inline(
    "softmax_extension_memo", "torch::Tensor softmax(torch::Tensor x);", cuda_sources=SOURCE, functions=["softmax"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.softmax(x)
