"""Root-mean-square normalisation: sum of squares, then a division per element."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cmath>
#include <cstdint>

constexpr int64_t LANES = 1;  // tune: 1 4 8 16 32 64

extern "C" void rmsnorm(const float* x, const float* weight, float* out, int64_t rows, int64_t cols, float eps) {
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = x + r * cols;
        float* target = out + r * cols;
        const int64_t blocks = cols / LANES;
        double partial[LANES] = {};
        for (int64_t b = 0; b < blocks; ++b) {
            for (int64_t l = 0; l < LANES; ++l) {
                const double value = row[b * LANES + l];
                partial[l] += value * value;
            }
        }
        double sum = 0.0;
        for (int64_t l = 0; l < LANES; ++l) {
            sum += partial[l];
        }
        for (int64_t c = blocks * LANES; c < cols; ++c) {
            sum += static_cast<double>(row[c]) * row[c];
        }
        const float root = static_cast<float>(std::sqrt(sum / cols + eps));
        for (int64_t c = 0; c < cols; ++c) {
            target[c] = row[c] / root * weight[c];
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "rmsnorm",
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
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(0.5 + torch.rand(features))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        library.rmsnorm(
            address(x),
            address(self.weight),
            address(out),
            ctypes.c_int64(x.shape[0]),
            ctypes.c_int64(x.shape[1]),
            ctypes.c_float(self.eps),
        )
        return out
