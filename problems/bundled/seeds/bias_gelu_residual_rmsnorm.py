"""Bias, GELU, residual and row RMS normalisation: naive scalar seed, in double precision inside a row."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>

constexpr int64_t TERMS = 12;  // tune: 6 7 8 9 10 12 14

// 1 / k! for k = 14 .. 0, highest power first.
static const double COEFFICIENT[15] = {
    1.0 / 87178291200.0, 1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
    1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0,
    1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0};

// exp(x): x = n ln 2 + r, a Taylor polynomial of TERMS terms for exp(r), then n added to its exponent bits.
static inline double exp_plain(double x) {
    x = x > 700.0 ? 700.0 : x;
    x = x < -700.0 ? -700.0 : x;
    const double n = std::rint(x * 1.4426950408889634);
    const double r = x - n * 0.6931471805599453;
    double power = 0.0;
    for (int64_t k = 0; k < TERMS; ++k) {
        power = power * r + COEFFICIENT[15 - TERMS + k];
    }
    int64_t bits;
    std::memcpy(&bits, &power, sizeof(bits));
    bits += static_cast<int64_t>(static_cast<int32_t>(n)) * (int64_t(1) << 52);
    std::memcpy(&power, &bits, sizeof(bits));
    return power;
}

static inline double tanh_plain(double x) {
    const double up = exp_plain(x);
    const double down = exp_plain(-x);
    return (up - down) / (up + down);
}

extern "C" void bias_gelu_residual_rmsnorm(const float* x, const float* residual, const float* bias,
                                           const float* gain, float* out, int64_t rows, int64_t features,
                                           double eps) {
    for (int64_t r = 0; r < rows; ++r) {
        const float* x_row = x + r * features;
        const float* residual_row = residual + r * features;
        float* out_row = out + r * features;
        for (int64_t c = 0; c < features; ++c) {
            const double h = x_row[c] + bias[c];
            const double inner = 0.7978845608028654 * (h + 0.044715 * h * h * h);
            out_row[c] = static_cast<float>(0.5 * h * (1.0 + tanh_plain(inner)) + residual_row[c]);
        }
        double sum = 0.0;
        for (int64_t c = 0; c < features; ++c) {
            const double value = out_row[c];
            sum += value * value;
        }
        const double factor = 1.0 / std::sqrt(sum / features + eps);
        for (int64_t c = 0; c < features; ++c) {
            out_row[c] = static_cast<float>(out_row[c] * factor * gain[c]);
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "bias_gelu_residual_rmsnorm",
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
    def __init__(self, features, eps):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features) * 0.5)
        self.gain = nn.Parameter(torch.rand(features) + 0.5)
        self.eps = eps

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        out = torch.empty_like(x)
        library.bias_gelu_residual_rmsnorm(
            address(x),
            address(residual),
            address(self.bias),
            address(self.gain),
            address(out),
            ctypes.c_int64(x.numel() // x.shape[-1]),
            ctypes.c_int64(x.shape[-1]),
            ctypes.c_double(self.eps),
        )
        return out
