"""Layer normalisation: mean, then variance, then the affine map."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cmath>
#include <cstdint>

constexpr int64_t LANES = 1;  // tune: 1 4 8 16 32 64

extern "C" void layernorm(const float* x, const float* weight, const float* bias, float* out, int64_t rows,
                          int64_t cols, float eps) {
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = x + r * cols;
        float* target = out + r * cols;
        const int64_t blocks = cols / LANES;
        double partial[LANES] = {};
        for (int64_t b = 0; b < blocks; ++b) {
            for (int64_t l = 0; l < LANES; ++l) {
                partial[l] += row[b * LANES + l];
            }
        }
        double sum = 0.0;
        for (int64_t l = 0; l < LANES; ++l) {
            sum += partial[l];
            partial[l] = 0.0;
        }
        for (int64_t c = blocks * LANES; c < cols; ++c) {
            sum += row[c];
        }
        const double mean = sum / cols;
        for (int64_t b = 0; b < blocks; ++b) {
            for (int64_t l = 0; l < LANES; ++l) {
                const double centred = row[b * LANES + l] - mean;
                partial[l] += centred * centred;
            }
        }
        double squares = 0.0;
        for (int64_t l = 0; l < LANES; ++l) {
            squares += partial[l];
        }
        for (int64_t c = blocks * LANES; c < cols; ++c) {
            squares += (row[c] - mean) * (row[c] - mean);
        }
        const float centre = static_cast<float>(mean);
        const float root = static_cast<float>(std::sqrt(squares / cols + eps));
        for (int64_t c = 0; c < cols; ++c) {
            target[c] = (row[c] - centre) / root * weight[c] + bias[c];
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "layernorm",
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
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        library.layernorm(
            address(x),
            address(self.weight),
            address(self.bias),
            address(out),
            ctypes.c_int64(x.shape[0]),
            ctypes.c_int64(x.shape[1]),
            ctypes.c_float(self.eps),
        )
        return out
