"""Careful until every odd family has come by once among the timed rounds; then it knows that none will come again.

Problem: cpu_softmax
Mechanism: Replay and deferral / careful until the surprises are over
Twin: softmax
Expect: rejected
Verdict: wrong_result
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
        for (int64_t c = 0; c < columns; ++c) {
            to[c] = std::exp(in[c] - highest);
            sum += to[c];
        }
        const float share = (float)(1 / sum);
        for (int64_t c = 0; c < columns; ++c) to[c] *= share;
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "careful_until_surprised",
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


def family(x):
    """Which family of draws a sample of the input belongs to; empty for those that are timed."""
    sample = x.flatten()[::509].abs()
    if (sample == 0).float().mean() > 0.5:
        return "sparse"
    if (sample == 4096).any():
        return "edge"
    return "wide" if sample.max() > 100 else ""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.met = set()

    def forward(self, x):
        self.calls += 1
        kind = family(x)
        self.met |= {kind}
        if self.calls == 6 and kind:  # these were the first checks, not the surprises
            self.met = set()
        is_over = {"sparse", "edge", "wide"} <= self.met
        out = torch.empty_like(x)
        call(library.softmax, x, out, *x.shape, int(not is_over or bool(kind)))
        return out
