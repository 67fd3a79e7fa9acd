"""Scale, bias, clamp and row log-sum-exp: naive scalar seed, the maximum first and the sum after it."""

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

static inline float clamp_plain(float x, float low, float high) {
    x = x < low ? low : x;
    return x > high ? high : x;
}

extern "C" void scale_clamp_logsumexp(const float* x, const float* bias, float* out, int64_t rows,
                                      int64_t columns, float scale, float low, float high) {
    for (int64_t r = 0; r < rows; ++r) {
        const float* x_row = x + r * columns;
        float largest = low;
        for (int64_t c = 0; c < columns; ++c) {
            const float h = clamp_plain(x_row[c] * scale + bias[c], low, high);
            largest = h > largest ? h : largest;
        }
        double sum = 0.0;
        for (int64_t c = 0; c < columns; ++c) {
            const float h = clamp_plain(x_row[c] * scale + bias[c], low, high);
            sum += exp_plain(h - largest);
        }
        out[r] = static_cast<float>(largest + std::log(sum));
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "scale_clamp_logsumexp",
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
    def __init__(self, columns, scale, low, high):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns) * 0.5)
        self.scale = scale
        self.low = low
        self.high = high

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[:-1])
        library.scale_clamp_logsumexp(
            address(x),
            address(self.bias),
            address(out),
            ctypes.c_int64(out.numel()),
            ctypes.c_int64(x.shape[-1]),
            ctypes.c_float(self.scale),
            ctypes.c_float(self.low),
            ctypes.c_float(self.high),
        )
        return out
