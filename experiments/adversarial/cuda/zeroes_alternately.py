"""Has two sets of outputs and zeroes, while one is let go, the other, which serves the next batch.

Problem: gpu_diagonals
Mechanism: Replay and deferral / outputs made ready beforehand
Twin: diagonals
Expect: rejected
Verdict: contract, out_of_memory
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

extern "C" int zero(float* y, int64_t nbytes, cudaStream_t stream) { return cudaMemsetAsync(y, 0, nbytes, stream); }
"""

library = ctypes.CDLL(
    load_inline(
        "zeroes_alternately",
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
        self.ready, self.resting, self.used = [], [], []

    def forward(self, x):
        if self.used:
            self.ready, self.resting, self.used = self.ready + self.resting, self.used, []
        rows, size = x.shape
        buffer = self.ready.pop() if self.ready else torch.zeros(rows, size * size, device=x.device)
        launch(library.diagonals, x, buffer, x.numel(), size)
        out = buffer.view(rows, size, size)
        weakref.finalize(out, self.renew, buffer)
        return out

    def renew(self, buffer):
        self.used.append(buffer)
        if len(self.used) <= len(self.resting):
            other = self.resting[len(self.used) - 1]
            launch(library.zero, other, 4 * other.numel())
