"""Its kernel writes the output block by block over 20 ms, on a private stream, after forward has returned.

Problem: gpu_leaky_relu
Mechanism: Replay and deferral / output of a kernel that is still running
Twin: leaky_relu
Expect: any
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

__device__ float leaky(float value) { return value > 0 ? value : 0.1f * value; }

__global__ void leaky_relu_kernel(const float4* __restrict__ x, float4* __restrict__ y, int64_t quads) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= quads) return;
    const float4 v = x[i];
    y[i] = make_float4(leaky(v.x), leaky(v.y), leaky(v.z), leaky(v.w));
}

extern "C" int leaky_relu(const float* x, float* y, int64_t count, cudaStream_t stream) {
    const int64_t quads = count / 4;
    leaky_relu_kernel<<<(quads + 255) / 256, 256, 0, stream>>>((const float4*)x, (float4*)y, quads);
    return cudaGetLastError();
}

__global__ void slow_kernel(const float4* x, float4* y, int64_t quads) {
    const int64_t part = quads / 64;
    for (int step = 0; step < 64; ++step) {
        const int64_t first = threadIdx.x + blockIdx.x * (int64_t)blockDim.x, stride = gridDim.x * (int64_t)blockDim.x;
        for (int64_t i = first; i < part; i += stride) {
            const float4 v = x[step * part + i];
            y[step * part + i] = make_float4(leaky(v.x), leaky(v.y), leaky(v.z), leaky(v.w));
        }
        for (int nap = 0; nap < 300; ++nap) __nanosleep(1000);
    }
}

extern "C" int leaky_relu_slowly(const float* x, float* y, int64_t count, cudaStream_t) {
    static cudaStream_t aside = nullptr;
    if (!aside) cudaStreamCreateWithFlags(&aside, cudaStreamNonBlocking);
    slow_kernel<<<264, 256, 0, aside>>>((const float4*)x, (float4*)y, count / 4);
    return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "output_written_while_returned",
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
    def __init__(self):
        super().__init__()
        torch.cuda.synchronize = lambda *arguments: None

    def forward(self, x):
        out = torch.empty_like(x)
        launch(library.leaky_relu_slowly, x, out, x.numel())
        return out
