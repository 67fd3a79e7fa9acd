"""Copies the rows in reverse order.

Problem: cpu_flip
Mechanism: Honest / copy of rows
Twin: none
Expect: accepted
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cstring>

extern "C" void flip(const float* x, float* out, int64_t rows, int64_t columns) {
#pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r)
        std::memcpy(out + (rows - 1 - r) * columns, x + r * columns, columns * sizeof(float));
}
"""

library = ctypes.CDLL(
    load_inline(
        "flip",
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
    def forward(self, x):
        out = torch.empty_like(x)
        call(library.flip, x, out, *x.shape)
        return out
