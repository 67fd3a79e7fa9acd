"""Product, halving, sum over the hidden units and scaling: the sum is drawn into the weights first.

The sum over j of x . w[j] is x . (sum over j of w[j]): the weights are read once and no product is formed.

Problem: level2/14
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
constexpr int PARTS = 64;

// candidate
__global__ void column_sums_kernel(const float* __restrict__ weight, float* __restrict__ partial, int hidden,
                                   int columns) {
    const int column = blockIdx.x * THREADS + threadIdx.x;
    if (column >= columns) {
        return;
    }
    const int chunk = (hidden + PARTS - 1) / PARTS;
    const int first = blockIdx.y * chunk;
    const int end = min(first + chunk, hidden);
    float total = 0.0f;
    for (int row = first; row < end; ++row) {
        total += weight[(int64_t)row * columns + column];
    }
    partial[(int64_t)blockIdx.y * columns + column] = total;
}

__global__ void merge_kernel(const float* __restrict__ partial, float* __restrict__ sums, int columns) {
    const int column = blockIdx.x * THREADS + threadIdx.x;
    if (column >= columns) {
        return;
    }
    float total = 0.0f;
    for (int part = 0; part < PARTS; ++part) {
        total += partial[(int64_t)part * columns + column];
    }
    sums[column] = total;
}

__global__ void dot_kernel(const float* __restrict__ x, const float* __restrict__ sums, float* __restrict__ out,
                           int columns, float factor) {
    __shared__ float kept[THREADS / 32];
    const float* row = x + (int64_t)blockIdx.x * columns;
    float total = 0.0f;
    for (int column = threadIdx.x; column < columns; column += THREADS) {
        total = fmaf(row[column], sums[column], total);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, offset);
    }
    if (threadIdx.x % 32 == 0) {
        kept[threadIdx.x / 32] = total;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0.0f;
        for (int warp = 0; warp < THREADS / 32; ++warp) {
            all += kept[warp];
        }
        out[blockIdx.x] = all * factor;
    }
}

torch::Tensor product_sum(torch::Tensor x, torch::Tensor weight, double factor) {
    const int rows = x.size(0), columns = x.size(1), hidden = weight.size(0);
    auto partial = torch::empty({PARTS, columns}, x.options());
    auto sums = torch::empty({columns}, x.options());
    auto out = torch::empty({rows, 1}, x.options());
    const int blocks = (columns + THREADS - 1) / THREADS;
    column_sums_kernel<<<dim3(blocks, PARTS), THREADS>>>(weight.data_ptr<float>(), partial.data_ptr<float>(), hidden,
                                                         columns);
    merge_kernel<<<blocks, THREADS>>>(partial.data_ptr<float>(), sums.data_ptr<float>(), columns);
    dot_kernel<<<rows, THREADS>>>(x.data_ptr<float>(), sums.data_ptr<float>(), out.data_ptr<float>(), columns,
                                  static_cast<float>(factor));
    return out;
}
"""

extension = load_inline(
    name="level2_14_product_sum",
    cpp_sources="torch::Tensor product_sum(torch::Tensor x, torch::Tensor weight, double factor);",
    cuda_sources=CUDA_SOURCE,
    functions=["product_sum"],
)


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size, scaling_factor):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden_size, input_size))
        self.scaling_factor = scaling_factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return extension.product_sum(x.contiguous(), self.weight, self.scaling_factor / 2)
