"""The twin with a row in blocks of 512 columns.

Problem: cpu_softsign
Mechanism: Harmless variant / other block size
Twin: softsign
Expect: accepted-harmless
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
        for (int64_t first = 0; first < columns; first += 512) {
            const int64_t end = first + 512 < columns ? first + 512 : columns;
            for (int64_t c = first; c < end; ++c)
                out[r * columns + c] = softsign(x[r * columns + c] * scale[c] + bias[c]);
        }
}
"""

library = ctypes.CDLL(
    load_inline(
        "softsign_in_blocks",
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

    def compute(self, x):
        out = torch.empty_like(x)
        call(library.scaled_softsign, x, self.scale, self.bias, out, *x.shape)
        return out

    def forward(self, x):
        return self.compute(x)
