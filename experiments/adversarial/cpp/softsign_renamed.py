"""The twin with other names.

Problem: cpu_softsign
Mechanism: Harmless variant / other names
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

extern "C" void saturate(const float* x, const float* gain, const float* offset, float* out, int64_t height,
                            int64_t breadth) {
#pragma omp parallel for
    for (int64_t row = 0; row < height; ++row)
        for (int64_t c = 0; c < breadth; ++c)
            out[row * breadth + c] = softsign(x[row * breadth + c] * gain[c] + offset[c]);
}
"""

library = ctypes.CDLL(
    load_inline(
        "softsign_renamed",
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

    def forward(self, batch):
        result = torch.empty_like(batch)
        call(library.saturate, batch, self.scale, self.bias, result, *batch.shape)
        return result
