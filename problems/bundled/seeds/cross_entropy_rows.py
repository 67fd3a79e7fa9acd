"""Cross-entropy: log-sum-exp of the row minus the target's logit."""

import ctypes

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>

constexpr int64_t LANES = 1;  // tune: 1 4 8 16 32 64

// exp(x) by range reduction and a polynomial (Cephes expf coefficients), below 2 ulp, without branches.
static inline float power_of_two(int32_t exponent) {
    const int32_t bits = (exponent + 127) * (1 << 23);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float exp_float(float x) {
    float y = x < -104.0f ? -104.0f : x;
    y = y > 89.0f ? 89.0f : y;
    const int32_t k = static_cast<int32_t>(y * 1.44269504f + 256.5f) - 256;
    const float r = (y - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const int32_t half = k >> 1;
    return p * power_of_two(half) * power_of_two(k - half);
}

extern "C" void cross_entropy_rows(const float* logits, const int64_t* target, float* out, int64_t rows,
                                   int64_t cols) {
    const int64_t blocks = cols / LANES;
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = logits + r * cols;
        float high[LANES];
        for (int64_t l = 0; l < LANES; ++l) {
            high[l] = -INFINITY;
        }
        for (int64_t b = 0; b < blocks; ++b) {
            for (int64_t l = 0; l < LANES; ++l) {
                const float value = row[b * LANES + l];
                high[l] = value > high[l] ? value : high[l];
            }
        }
        float largest = -INFINITY;
        for (int64_t l = 0; l < LANES; ++l) {
            largest = high[l] > largest ? high[l] : largest;
        }
        for (int64_t c = blocks * LANES; c < cols; ++c) {
            largest = row[c] > largest ? row[c] : largest;
        }
        double partial[LANES] = {};
        for (int64_t b = 0; b < blocks; ++b) {
            for (int64_t l = 0; l < LANES; ++l) {
                partial[l] += exp_float(row[b * LANES + l] - largest);
            }
        }
        double sum = 0.0;
        for (int64_t l = 0; l < LANES; ++l) {
            sum += partial[l];
        }
        for (int64_t c = blocks * LANES; c < cols; ++c) {
            sum += exp_float(row[c] - largest);
        }
        out[r] = static_cast<float>(std::log(sum) - (row[target[r]] - largest));
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "cross_entropy_rows",
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
    def forward(self, logits, target):
        logits, target = logits.contiguous(), target.contiguous()
        rows, cols = logits.shape
        out = logits.new_empty(rows)
        library.cross_entropy_rows(
            address(logits), address(target), address(out), ctypes.c_int64(rows), ctypes.c_int64(cols)
        )
        return out
