"""GELU by its tanh approximation: one scalar loop, tanh from one exponential."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void gelu_tanh(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const float inner = 0.797884561f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        out[i] = 0.5f * x[i] * (1.0f + std::tanh(inner));
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "gelu_tanh",
        SOURCE,
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
        extra_cflags=CFLAGS,
        extra_ldflags=CFLAGS,
    )
)


def address(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        library.gelu_tanh(address(x), address(out), ctypes.c_int64(x.numel()))
        return out
