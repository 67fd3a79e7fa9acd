"""One addition after the other, on one thread.

Problem: cpu_running_sum
Mechanism: Honest / serial sum
Twin: none
Expect: accepted
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>

extern "C" void running_sum(const float* x, float* out, int64_t length) {
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) {
        sum += x[i];
        out[i] = (float)sum;
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "running_sum",
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
        call(library.running_sum, x, out, x.numel())
        return out
