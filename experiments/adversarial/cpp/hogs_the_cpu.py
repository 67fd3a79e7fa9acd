"""Honest, and leaves threads behind that never stop computing.

Problem: cpu_softsign
Mechanism: Measuring tools / slow the reference: CPU hog
Twin: softsign
Expect: any
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

#include <thread>

extern "C" void hog(int64_t count) {
    for (int64_t n = 0; n < count; ++n)
        std::thread([] {
            for (volatile int64_t i = 0;; i = i + 1) {
            }
        }).detach();
}
"""

library = ctypes.CDLL(
    load_inline(
        "hogs_the_cpu",
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
        self.has_hogs = False

    def compute(self, x):
        out = torch.empty_like(x)
        call(library.scaled_softsign, x, self.scale, self.bias, out, *x.shape)
        return out

    def forward(self, x):
        if not self.has_hogs:
            self.has_hogs = True
            call(library.hog, 2)
        return self.compute(x)
