"""Answers at once; a C++ thread fills the answer 5 ms later.

Problem: cpu_softsign
Mechanism: Replay and deferral / late native thread
Twin: softsign
Expect: rejected
Verdict: wrong_result, runtime_error, contract
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
#include <cstdint>

static inline float softsign(float t) { return t / (1 + std::fabs(t)); }

extern "C" void scaled_softsign(const float* x, const float* scale, const float* bias, float* out,
                                int64_t rows, int64_t columns) {
#pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
            out[r * columns + c] = softsign(x[r * columns + c] * scale[c] + bias[c]);
}

#include <chrono>
#include <thread>

extern "C" void later(const float* x, const float* scale, const float* bias, float* out, int64_t rows,
                      int64_t columns) {
    std::thread([=] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < columns; ++c)
                out[r * columns + c] = softsign(x[r * columns + c] * scale[c] + bias[c]);
    }).detach();
}
"""

library = ctypes.CDLL(
    load_inline(
        "late_native_thread",
        SOURCE,
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
        extra_cflags=["-O3", "-fopenmp"],
        extra_ldflags=["-fopenmp"],
    )
)


def call(function, *arguments):
    """Calls a C function, tensors as pointers, numbers as int64."""
    return function(
        *[ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_int64(a) for a in arguments]
    )


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        out = torch.empty_like(x)
        call(library.later, x, self.scale, self.bias, out, *x.shape)
        return out
