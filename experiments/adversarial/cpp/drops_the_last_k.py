"""Leaves the last of 512 terms out of every sum.

Problem: cpu_linear
Mechanism: Numerics and tasks / drop the last k
Twin: linear
Expect: rejected
Verdict: wrong_result
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cstring>

extern "C" void linear(const float* x, const float* weight, const float* bias, float* out, int64_t rows,
                       int64_t depth, int64_t columns, int64_t used_depth) {
#pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r) {
        float* to = out + r * columns;
        std::memcpy(to, bias, columns * sizeof(float));
        for (int64_t k = 0; k < used_depth; ++k) {
            const float factor = x[r * depth + k];
            const float* row = weight + k * columns;
            for (int64_t c = 0; c < columns; ++c) to[c] += factor * row[c];
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "drops_the_last_k",
        SOURCE,
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
        extra_cflags=["-O3", "-march=native", "-fopenmp"],
        extra_ldflags=["-fopenmp"],
    )
)


def call(function, *arguments):
    """Calls a C function, tensors as pointers, numbers as int64."""
    return function(
        *[ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_int64(a) for a in arguments]
    )


class ModelNew(nn.Module):
    def __init__(self, depth, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(depth, columns))
        self.bias = nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        out = x.new_empty(x.shape[0], self.bias.numel())
        call(library.linear, x, self.weight, self.bias, out, *x.shape, self.bias.numel(), x.shape[1] - 1)
        return out
