"""The twin with the exponentials of a row in blocks of 256 columns.

Problem: cpu_softmax
Mechanism: Harmless variant / other block size
Twin: softmax
Expect: accepted-harmless
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" void softmax(const float* x, float* out, int64_t rows, int64_t columns, int64_t is_careful) {
#pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x + r * columns;
        float* to = out + r * columns;
        float highest = 0;
        double sum = 0;
        if (is_careful) {
            highest = in[0];
            for (int64_t c = 1; c < columns; ++c) highest = std::max(highest, in[c]);
        }
        for (int64_t first = 0; first < columns; first += 256) {
            const int64_t end = std::min(first + 256, columns);
            for (int64_t c = first; c < end; ++c) {
                to[c] = std::exp(in[c] - highest);
                sum += to[c];
            }
        }
        const float share = (float)(1 / sum);
        for (int64_t c = 0; c < columns; ++c) to[c] *= share;
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "softmax_in_blocks",
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
        call(library.softmax, x, out, *x.shape, 1)
        return out
