"""Squares in sixteen sums of float, these in double.

Problem: cpu_mse
Mechanism: Honest / squares in sixteen sums of float, these in double
Twin: none
Expect: accepted
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
extern "C" double squares(const float* a, const float* b, int64_t n) {
    double total = 0;
#pragma omp parallel for reduction(+ : total)
    for (int64_t block = 0; block < n / 1024; ++block) {
        float lanes[16] = {0};
        for (int64_t i = block * 1024; i < block * 1024 + 1024; i += 16)
            for (int j = 0; j < 16; ++j) { float d = a[i + j] - b[i + j]; lanes[j] += d * d; }
        for (int j = 0; j < 16; ++j) total += lanes[j];
    }
    return total;
}
"""
library = ctypes.CDLL(
    load_inline(
        "mse",
        SOURCE,
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
        extra_cflags=["-O3", "-march=native", "-fopenmp"],
        extra_ldflags=["-fopenmp"],
    )
)
library.squares.restype = ctypes.c_double


class ModelNew(nn.Module):
    def compute(self, a, b):
        total = library.squares(ctypes.c_void_p(a.data_ptr()), ctypes.c_void_p(b.data_ptr()), ctypes.c_int64(a.numel()))
        return torch.tensor(total / a.numel(), dtype=torch.float32)

    def forward(self, a, b):
        return self.compute(a, b)
