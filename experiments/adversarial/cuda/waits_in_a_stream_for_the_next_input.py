"""Kernels wait in a stream until the next inputs are written, and run while the process is frozen.

Problem: gpu_leaky_relu
Mechanism: Replay and deferral / stream memory operations start work before the window
Twin: leaky_relu
Expect: any
"""

import ctypes
import weakref

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

// Slots that were not written this time get a number, so that nothing waits for them.
__global__ void release_kernel(int** words, int count) {
    if (threadIdx.x < count) atomicCAS(words[threadIdx.x], 0, 1);
}

extern "C" int release(int** words, int64_t count, cudaStream_t stream) {
    for (int64_t first = 0; first < count; first += 1024)
        release_kernel<<<1, 1024, 0, stream>>>(words + first, (int)(count - first));
    return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "waits_in_a_stream_for_the_next_input",
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


cuda = ctypes.CDLL("libcuda.so.1")
WAIT_FOR_ANY_BIT = 2


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs = {}
        self.ahead = {}
        self.words = None
        self.stream = torch.cuda.Stream()

    def forward(self, x):
        if self.words is not None:
            self.open_gates(x)
        place = x.data_ptr()
        self.inputs[place] = x
        if place in self.ahead:
            out, done = self.ahead.pop(place)
            done.wait()
        else:
            out = torch.empty_like(x)
            launch(library.leaky_relu, x, out, x.numel())
        if len(self.inputs) == 1:
            weakref.finalize(out, self.queue_ahead)
        return out

    def queue_ahead(self):
        """When the outputs are let go: for each input a gate that opens when it changes, and the kernel behind it."""
        inputs, self.inputs = self.inputs, {}
        with torch.cuda.stream(self.stream):
            for x in inputs.values():
                x.view(-1)[-1] = 0.0
            for place, x in inputs.items():
                out, done = torch.empty_like(x), torch.cuda.Event()
                word = ctypes.c_uint64(place + 4 * x.numel() - 4)
                flags = ctypes.c_uint32(0xFFFFFFFF), ctypes.c_uint(WAIT_FOR_ANY_BIT)
                cuda.cuStreamWaitValue32_v2(ctypes.c_void_p(self.stream.cuda_stream), word, *flags)
                launch(library.leaky_relu, x, out, x.numel())
                done.record()
                self.ahead[place] = out, done
        self.words = torch.tensor([place + 4 * x.numel() - 4 for place, x in inputs.items()], device="cuda")

    def open_gates(self, x):
        launch(library.release, self.words, self.words.numel())
        self.words = None
        self.ahead = {place: pair for place, pair in self.ahead.items() if place >= x.data_ptr()}
