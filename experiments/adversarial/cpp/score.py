"""Sums of many tanh in double.

Problem: cpu_score
Mechanism: Honest / sums of many tanh in double
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
extern "C" void score(const float* x, const float* w, const float* bias, float* out, int64_t rows, int64_t n) {
#pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r) {
        double total = 0;
        for (int64_t i = 0; i < n; ++i) total += std::tanh(x[r * n + i] * w[i]);
        out[r] = total + bias[0];
    }
}
"""
library = ctypes.CDLL(
    load_inline(
        "score",
        SOURCE,
        functions=None,
        no_implicit_headers=True,
        is_python_module=False,
        extra_cflags=["-O3", "-march=native", "-fopenmp"],
        extra_ldflags=["-fopenmp"],
    )
)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(columns)), nn.Parameter(torch.zeros(1))

    def compute(self, x):
        out = torch.empty(x.shape[0])
        library.score(
            *[ctypes.c_void_p(t.data_ptr()) for t in (x, self.weight, self.bias, out)], *map(ctypes.c_int64, x.shape)
        )
        return out

    def forward(self, x):
        return self.compute(x)
