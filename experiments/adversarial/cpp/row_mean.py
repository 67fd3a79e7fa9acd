"""The sum of each row over its length.

Problem: cpu_row_mean
Mechanism: Honest / reduction
Twin: none
Expect: accepted
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>

extern "C" void row_mean(const float* x, float* out, int64_t rows, int64_t columns) {
#pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t c = 0; c < columns; ++c) sum += x[r * columns + c];
        out[r] = (float)(sum / columns);
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "row_mean",
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
        out = x.new_empty(x.shape[0])
        call(library.row_mean, x, out, *x.shape)
        return out
