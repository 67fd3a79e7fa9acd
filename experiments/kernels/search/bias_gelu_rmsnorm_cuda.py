"""A first CUDA kernel for bias_gelu_rmsnorm_problem.py: correct, slow, and with choices for `tune`."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 32;  // tune: 32 64 128 256 512 1024
constexpr int WIDTH = 1;  // tune: 1 2 4
constexpr int KEEP = 0;  // tune: 0 1
constexpr int STREAMING = 0;  // tune: 0 1

struct alignas(4 * WIDTH) Pack { float at[WIDTH]; };

__device__ __forceinline__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678118f)); }

__device__ __forceinline__ Pack load(const Pack* place) {
    if constexpr (!STREAMING) return *place;
    Pack pack;
    for (int i = 0; i < WIDTH; ++i) pack.at[i] = __ldcs(&place->at[i]);
    return pack;
}

__device__ float sum_of_block(float value) {
    __shared__ float sums[32];
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) total += sums[warp];
    return total;
}

__global__ void __launch_bounds__(THREADS)
    rmsnorm_kernel(const Pack* __restrict__ x, const Pack* __restrict__ residual, const Pack* __restrict__ bias,
                   const Pack* __restrict__ weight, Pack* __restrict__ y, int packs) {
    extern __shared__ Pack kept[];
    const int64_t row = (int64_t)blockIdx.x * packs;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < packs; i += THREADS) {
        const Pack a = load(x + row + i), r = load(residual + row + i), b = bias[i];
        Pack v;
        for (int k = 0; k < WIDTH; ++k) {
            v.at[k] = gelu(a.at[k] + b.at[k]) + r.at[k];
            squares += v.at[k] * v.at[k];
        }
        if constexpr (KEEP) kept[i] = v;
    }
    const float scale = rsqrtf(sum_of_block(squares) / (packs * WIDTH) + 1e-6f);
    for (int i = threadIdx.x; i < packs; i += THREADS) {
        Pack v;
        if constexpr (KEEP) {
            v = kept[i];
        } else {
            const Pack a = load(x + row + i), r = load(residual + row + i), b = bias[i];
            for (int k = 0; k < WIDTH; ++k) v.at[k] = gelu(a.at[k] + b.at[k]) + r.at[k];
        }
        const Pack w = weight[i];
        for (int k = 0; k < WIDTH; ++k) v.at[k] *= scale * w.at[k];
        y[row + i] = v;
    }
}

extern "C" int bias_gelu_rmsnorm(const float* x, const float* residual, const float* bias, const float* weight,
                                 float* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    const int packs = (int)(columns / WIDTH);
    rmsnorm_kernel<<<(unsigned)rows, THREADS, KEEP ? columns * sizeof(float) : 0, stream>>>(
        (const Pack*)x, (const Pack*)residual, (const Pack*)bias, (const Pack*)weight, (Pack*)y, packs);
    return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "bias_gelu_rmsnorm",
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
        self.bias = nn.Parameter(torch.zeros(columns))
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x, residual):
        out = torch.empty_like(x)
        launch(library.bias_gelu_rmsnorm, x, residual, self.bias, self.weight, out, x.shape[0], x.shape[1])
        return out
