"""Small linear layer, bias, GELU and scale: naive scalar seed, TILE outputs of a row at a time."""

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

static inline float tanh_plain(float x) {
    return 1.0f - 2.0f / (exp_plain(2.0f * x) + 1.0f);
}

constexpr int64_t TILE = 4;  // tune: 4 8 16 32 64

static inline float gelu_plain(float x) {
    return 0.5f * x * (1.0f + tanh_plain(0.7978845608f * (x + 0.044715f * x * x * x)));
}

extern "C" void linear_bias_gelu_scale(const float* x, const float* weight, const float* bias,
                                       const float* scale, float* out, int64_t rows, int64_t inputs,
                                       int64_t outputs) {
    const int64_t tiles = outputs / TILE;
    for (int64_t r = 0; r < rows; ++r) {
        const float* x_row = x + r * inputs;
        float* out_row = out + r * outputs;
        for (int64_t t = 0; t < tiles; ++t) {
            float total[TILE];
            for (int64_t j = 0; j < TILE; ++j) {
                total[j] = bias[t * TILE + j];
            }
            for (int64_t k = 0; k < inputs; ++k) {
                for (int64_t j = 0; j < TILE; ++j) {
                    total[j] += x_row[k] * weight[k * outputs + t * TILE + j];
                }
            }
            for (int64_t j = 0; j < TILE; ++j) {
                out_row[t * TILE + j] = total[j];
            }
        }
        for (int64_t j = tiles * TILE; j < outputs; ++j) {
            float total = bias[j];
            for (int64_t k = 0; k < inputs; ++k) {
                total += x_row[k] * weight[k * outputs + j];
            }
            out_row[j] = total;
        }
        for (int64_t j = 0; j < outputs; ++j) {
            out_row[j] = gelu_plain(out_row[j]) * scale[j];
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "linear_bias_gelu_scale",
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
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features) / in_features**0.5)
        self.bias = nn.Parameter(torch.randn(out_features) * 0.1)
        self.scale = nn.Parameter(torch.rand(out_features) + 0.5)

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], self.bias.shape[0])
        library.linear_bias_gelu_scale(
            address(x),
            address(self.weight),
            address(self.bias),
            address(self.scale),
            address(out),
            ctypes.c_int64(x.shape[0]),
            ctypes.c_int64(x.shape[1]),
            ctypes.c_int64(self.bias.shape[0]),
        )
        return out
