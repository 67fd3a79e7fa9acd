"""Head RMS normalisation, rotary embedding and scale: naive scalar seed, LANES partial sums per head."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cmath>
#include <cstdint>

constexpr int64_t LANES = 1;  // tune: 1 2 4 8 16 32

static inline float sum_of_squares(const float* x, int64_t width) {
    float partial[LANES] = {};
    const int64_t groups = width / LANES;
    for (int64_t g = 0; g < groups; ++g) {
        for (int64_t lane = 0; lane < LANES; ++lane) {
            const float value = x[g * LANES + lane];
            partial[lane] += value * value;
        }
    }
    float sum = 0.0f;
    for (int64_t lane = 0; lane < LANES; ++lane) {
        sum += partial[lane];
    }
    for (int64_t c = groups * LANES; c < width; ++c) {
        sum += x[c] * x[c];
    }
    return sum;
}

extern "C" void rmsnorm_rope_scale(const float* x, const float* cosine, const float* sine, const float* gain,
                                   float* out, int64_t rows, int64_t length, int64_t width, float eps,
                                   float scale) {
    const int64_t half = width / 2;
    for (int64_t r = 0; r < rows; ++r) {
        const float* x_row = x + r * width;
        const float* cosine_row = cosine + (r % length) * width;
        const float* sine_row = sine + (r % length) * width;
        float* out_row = out + r * width;
        const float factor = 1.0f / std::sqrt(sum_of_squares(x_row, width) / width + eps);
        for (int64_t c = 0; c < half; ++c) {
            const float first = x_row[c] * factor * gain[c];
            const float second = x_row[half + c] * factor * gain[half + c];
            out_row[c] = (first * cosine_row[c] - second * sine_row[c]) * scale;
            out_row[half + c] = (second * cosine_row[half + c] + first * sine_row[half + c]) * scale;
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "rmsnorm_rope_scale",
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
    def __init__(self, width, eps):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(width) + 0.5)
        self.eps = eps
        self.scale = width**-0.5

    def forward(self, x, cosine, sine):
        x, cosine, sine = x.contiguous(), cosine.contiguous(), sine.contiguous()
        out = torch.empty_like(x)
        library.rmsnorm_rope_scale(
            address(x),
            address(cosine),
            address(sine),
            address(self.gain),
            address(out),
            ctypes.c_int64(x.numel() // x.shape[-1]),
            ctypes.c_int64(x.shape[-2]),
            ctypes.c_int64(x.shape[-1]),
            ctypes.c_float(self.eps),
            ctypes.c_float(self.scale),
        )
        return out
