"""The gated branch in one pass.

Problem: cpu_gate
Mechanism: Honest / elementwise with a gate
Twin: none
Expect: accepted
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void gated(const float* x, const float* gate, float* out, int64_t count) {
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) out[i] = x[i] + gate[0] * x[i] / (1 + std::fabs(x[i]));
}
"""

library = ctypes.CDLL(
    load_inline(
        "gate",
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
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        out = torch.empty_like(x)
        call(library.gated, x, self.gate, out, x.numel())
        return out
