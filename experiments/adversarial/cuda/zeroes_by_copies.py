"""Has a copy engine zero its outputs while they are let go, and after: no kernel runs.

Problem: gpu_diagonals
Mechanism: Replay and deferral / work between two calls
Twin: diagonals
Expect: rejected
Verdict: wrong_result
"""

import ctypes
import weakref

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

__global__ void diagonals_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t count, int64_t size) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < count) y[i / size * size * size + i % size * (size + 1)] = x[i];
}

extern "C" int diagonals(const float* x, float* y, int64_t count, int64_t size, cudaStream_t stream) {
    diagonals_kernel<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count, size);
    return cudaGetLastError();
}

extern "C" int copy(float* y, const float* zeros, int64_t nbytes, cudaStream_t stream) {
    return cudaMemcpyAsync(y, zeros, nbytes, cudaMemcpyHostToDevice, stream);
}
"""

library = ctypes.CDLL(
    load_inline(
        "zeroes_by_copies",
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
        self.free, self.zeros = [], None

    def forward(self, x):
        rows, size = x.shape
        if self.zeros is None:
            self.zeros = torch.zeros(rows, size * size).pin_memory()
        buffer = self.free.pop() if self.free else torch.zeros(rows, size * size, device=x.device)
        launch(library.diagonals, x, buffer, x.numel(), size)
        out = buffer.view(rows, size, size)
        weakref.finalize(out, self.renew, buffer)
        return out

    def renew(self, buffer):
        launch(library.copy, buffer, self.zeros, 4 * buffer.numel())
        self.free.append(buffer)
