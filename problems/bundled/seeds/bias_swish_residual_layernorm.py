"""Bias, swish, residual and layer normalisation: naive scalar seed with four walks over each row."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>

constexpr int64_t TERMS = 9;  // tune: 6 7 8 9 10 11

// 1 / k! for k = 10 .. 0, highest power first.
static const float COEFFICIENT[11] = {
    1.0f / 3628800.0f, 1.0f / 362880.0f, 1.0f / 40320.0f, 1.0f / 5040.0f, 1.0f / 720.0f, 1.0f / 120.0f,
    1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f};

static inline float power_of_two(int32_t n) {
    const uint32_t bits = static_cast<uint32_t>(n + 127) << 23;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

// exp(x): x = n ln 2 + r, a Taylor polynomial of TERMS terms for exp(r), times 2^n in two halves.
static inline float exp_plain(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    const float count = std::rint(x * 1.44269504f);
    const float r = (x - count * 0.693359375f) + count * 2.12194440e-4f;
    float power = 0.0f;
    for (int64_t k = 0; k < TERMS; ++k) {
        power = power * r + COEFFICIENT[11 - TERMS + k];
    }
    const int32_t n = static_cast<int32_t>(count);
    const int32_t half = n / 2;
    return power * power_of_two(half) * power_of_two(n - half);
}

static inline float sigmoid_plain(float x) {
    return 1.0f / (1.0f + exp_plain(-x));
}

extern "C" void bias_swish_residual_layernorm(const float* x, const float* residual, const float* bias,
                                              const float* weight, const float* shift, float* out,
                                              int64_t rows, int64_t features, double eps) {
    for (int64_t r = 0; r < rows; ++r) {
        const float* x_row = x + r * features;
        const float* residual_row = residual + r * features;
        float* out_row = out + r * features;
        for (int64_t c = 0; c < features; ++c) {
            const float h = x_row[c] + bias[c];
            out_row[c] = h * sigmoid_plain(h) + residual_row[c];
        }
        double sum = 0.0;
        for (int64_t c = 0; c < features; ++c) {
            sum += out_row[c];
        }
        const double mean = sum / features;
        double squares = 0.0;
        for (int64_t c = 0; c < features; ++c) {
            const double distance = out_row[c] - mean;
            squares += distance * distance;
        }
        const double factor = 1.0 / std::sqrt(squares / features + eps);
        for (int64_t c = 0; c < features; ++c) {
            out_row[c] = static_cast<float>((out_row[c] - mean) * factor) * weight[c] + shift[c];
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "bias_swish_residual_layernorm",
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
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features) * 0.5)
        self.norm = nn.LayerNorm(features)

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        out = torch.empty_like(x)
        library.bias_swish_residual_layernorm(
            address(x),
            address(residual),
            address(self.bias),
            address(self.norm.weight),
            address(self.norm.bias),
            address(out),
            ctypes.c_int64(x.numel() // x.shape[-1]),
            ctypes.c_int64(x.shape[-1]),
            ctypes.c_double(self.norm.eps),
        )
        return out
