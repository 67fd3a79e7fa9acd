"""LayerNorm of few, very long rows: every row is shared by many blocks, means and squares are merged by Chan's rule.

T. F. Chan, G. H. Golub, R. J. LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample
Variances, COMPSTAT 1982. No difference of large sums is ever taken.

Problem: level1/40
Backend: cuda
Kind: honest
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

constexpr int THREADS = 256;
constexpr int PARTS = 256;

// candidate
struct Moments {
    float count, mean, squares;
};

__device__ __forceinline__ Moments merge(Moments a, Moments b) {
    const float count = a.count + b.count;
    if (count == 0.0f) {
        return a;
    }
    const float delta = b.mean - a.mean;
    const float share = b.count / count;
    return {count, a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share};
}

__device__ Moments block_merge(Moments mine) {
    __shared__ Moments kept[THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) {
        const Moments other = {__shfl_xor_sync(0xffffffffu, mine.count, offset),
                               __shfl_xor_sync(0xffffffffu, mine.mean, offset),
                               __shfl_xor_sync(0xffffffffu, mine.squares, offset)};
        mine = merge(mine, other);
    }
    if (threadIdx.x % 32 == 0) {
        kept[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    Moments all = kept[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) {
        all = merge(all, kept[warp]);
    }
    return all;
}

__global__ void partial_kernel(const float4* __restrict__ x, Moments* __restrict__ partial, int64_t quads) {
    const float4* row = x + blockIdx.x * quads;
    const int64_t chunk = (quads + PARTS - 1) / PARTS;
    const int64_t first = blockIdx.y * chunk;
    const int64_t end = first + chunk < quads ? first + chunk : quads;
    Moments mine = {0.0f, 0.0f, 0.0f};
    for (int64_t i = first + threadIdx.x; i < end; i += THREADS) {
        const float4 v = row[i];
        const float mean = 0.25f * ((v.x + v.y) + (v.z + v.w));
        const float a = v.x - mean, b = v.y - mean, c = v.z - mean, d = v.w - mean;
        mine = merge(mine, {4.0f, mean, (a * a + b * b) + (c * c + d * d)});
    }
    const Moments all = block_merge(mine);
    if (threadIdx.x == 0) {
        partial[blockIdx.x * PARTS + blockIdx.y] = all;
    }
}

__global__ void normalise_kernel(const float4* __restrict__ x, const float4* __restrict__ weight,
                                 const float4* __restrict__ bias, const Moments* __restrict__ partial,
                                 float4* __restrict__ out, int64_t quads, float eps) {
    const Moments all = block_merge(partial[blockIdx.x * PARTS + threadIdx.x]);
    const float mean = all.mean;
    const float scale = 1.0f / sqrtf(all.squares / all.count + eps);
    const int64_t chunk = (quads + PARTS - 1) / PARTS;
    const int64_t first = blockIdx.y * chunk;
    const int64_t end = first + chunk < quads ? first + chunk : quads;
    for (int64_t i = first + threadIdx.x; i < end; i += THREADS) {
        const float4 v = x[blockIdx.x * quads + i], w = weight[i], b = bias[i];
        out[blockIdx.x * quads + i] =
            make_float4((v.x - mean) * scale * w.x + b.x, (v.y - mean) * scale * w.y + b.y,
                        (v.z - mean) * scale * w.z + b.z, (v.w - mean) * scale * w.w + b.w);
    }
}

torch::Tensor layernorm_forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps) {
    static_assert(PARTS == THREADS, "each thread of normalise_kernel takes one part");
    const int64_t columns = weight.numel();
    TORCH_CHECK(columns % 4 == 0, "the row length must be a multiple of 4, found ", columns);
    const int64_t rows = x.numel() / columns;
    auto out = torch::empty_like(x);
    auto partial = torch::empty({rows, PARTS, 3}, x.options());
    // Rows run fastest, so that blocks that need the same weights run together and find them in the cache.
    const dim3 grid(rows, PARTS);
    auto* moments = reinterpret_cast<Moments*>(partial.data_ptr<float>());
    const auto* from = reinterpret_cast<const float4*>(x.data_ptr<float>());
    partial_kernel<<<grid, THREADS>>>(from, moments, columns / 4);
    normalise_kernel<<<grid, THREADS>>>(from, reinterpret_cast<const float4*>(weight.data_ptr<float>()),
                                        reinterpret_cast<const float4*>(bias.data_ptr<float>()), moments,
                                        reinterpret_cast<float4*>(out.data_ptr<float>()), columns / 4,
                                        static_cast<float>(eps));
    return out;
}
"""

extension = load_inline(
    name="level1_40_layernorm",
    cpp_sources="torch::Tensor layernorm_forward(torch::Tensor, torch::Tensor, torch::Tensor, double);",
    cuda_sources=CUDA_SOURCE,
    functions=["layernorm_forward"],
)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape: tuple):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.layernorm_forward(x.contiguous(), self.ln.weight, self.ln.bias, self.ln.eps)
