"""A toy problem whose seed has tunables and a loop."""

from __future__ import annotations

from problems.problem import Problem

SEED = '''"""Scale a vector: the naive seed."""
import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

constexpr int BLOCK = 4;  // tune: 4 8 16 32 64 128 256 512
constexpr int UNROLL = 4;  // tune: 4 8 16 32 64 128 256 512

extern "C" void scale(const float* x, float* out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        out[i] = x[i] * (BLOCK + UNROLL);
    }
}
"""

library = ctypes.CDLL(
    load_inline("scale", SOURCE, functions=None, no_implicit_headers=True, is_python_module=False,
                extra_cflags=CFLAGS, extra_ldflags=CFLAGS)
)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        address = ctypes.c_void_p
        library.scale(address(x.data_ptr()), address(out.data_ptr()), ctypes.c_int64(x.numel()))
        return out
'''

PROBLEM = """
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 16
"""


def toy() -> Problem:
    """The toy problem with its seed."""
    return Problem("toy", "toy", PROBLEM, seed=SEED)
