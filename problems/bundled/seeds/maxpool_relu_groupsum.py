"""Max pooling, shift, ReLU and sum over channel groups: naive scalar seed, channel by channel."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

// The larger of two numbers; a NaN wins.
static inline float larger(float a, float b) {
    return b > a || b != b ? b : a;
}

extern "C" void maxpool_relu_groupsum(const float* x, const float* shift, float* out, int64_t planes,
                                      int64_t groups, int64_t members, int64_t height, int64_t width) {
    const int64_t out_height = height / 2;
    const int64_t out_width = width / 2;
    for (int64_t p = 0; p < planes; ++p) {
        const float* shifts = shift + (p % groups) * members;
        for (int64_t i = 0; i < out_height; ++i) {
            float* out_row = out + (p * out_height + i) * out_width;
            for (int64_t j = 0; j < out_width; ++j) {
                out_row[j] = 0.0f;
            }
            for (int64_t m = 0; m < members; ++m) {
                const float* upper = x + ((p * members + m) * height + 2 * i) * width;
                const float* lower = upper + width;
                for (int64_t j = 0; j < out_width; ++j) {
                    const float top = larger(upper[2 * j], upper[2 * j + 1]);
                    const float bottom = larger(lower[2 * j], lower[2 * j + 1]);
                    const float h = larger(top, bottom) + shifts[m];
                    out_row[j] += h < 0.0f ? 0.0f : h;
                }
            }
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "maxpool_relu_groupsum",
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
    def __init__(self, channels, groups):
        super().__init__()
        self.groups = groups
        self.shift = nn.Parameter(torch.rand(channels) - 0.9)

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        out = torch.empty(batch, self.groups, height // 2, width // 2)
        library.maxpool_relu_groupsum(
            address(x),
            address(self.shift),
            address(out),
            ctypes.c_int64(batch * self.groups),
            ctypes.c_int64(self.groups),
            ctypes.c_int64(channels // self.groups),
            ctypes.c_int64(height),
            ctypes.c_int64(width),
        )
        return out
