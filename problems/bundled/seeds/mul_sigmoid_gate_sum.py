"""Product, sigmoid, gate and row sum: naive scalar seed with one running sum per row."""

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

extern "C" void mul_sigmoid_gate_sum(const float* a, const float* b, const float* gate, float* out,
                                     int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r) {
        const float* a_row = a + r * columns;
        const float* b_row = b + r * columns;
        const float* gate_row = gate + r * columns;
        double sum = 0.0;
        for (int64_t c = 0; c < columns; ++c) {
            sum += sigmoid_plain(a_row[c] * b_row[c]) * gate_row[c];
        }
        out[r] = static_cast<float>(sum);
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "mul_sigmoid_gate_sum",
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
    def forward(self, a, b, gate):
        a, b, gate = a.contiguous(), b.contiguous(), gate.contiguous()
        out = torch.empty(a.shape[:-1])
        library.mul_sigmoid_gate_sum(
            address(a),
            address(b),
            address(gate),
            address(out),
            ctypes.c_int64(out.numel()),
            ctypes.c_int64(a.shape[-1]),
        )
        return out
