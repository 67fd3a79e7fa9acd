"""Max pooling: every window searched in full, the border checked at every element; a NaN wins."""

import ctypes

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void maxpool2d(const float* x, float* out, int64_t planes, int64_t height, int64_t width,
                          int64_t out_height, int64_t out_width) {
    for (int64_t p = 0; p < planes; ++p) {
        for (int64_t i = 0; i < out_height; ++i) {
            for (int64_t j = 0; j < out_width; ++j) {
                float best = -INFINITY;
                for (int64_t di = 0; di < 3; ++di) {
                    for (int64_t dj = 0; dj < 3; ++dj) {
                        const int64_t row = 2 * i - 1 + di;
                        const int64_t col = 2 * j - 1 + dj;
                        if (row >= 0 && row < height && col >= 0 && col < width) {
                            const float value = x[(p * height + row) * width + col];
                            best = value > best || value != value ? value : best;
                        }
                    }
                }
                out[(p * out_height + i) * out_width + j] = best;
            }
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "maxpool2d",
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
    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        out_height, out_width = (height - 1) // 2 + 1, (width - 1) // 2 + 1
        out = x.new_empty(batch, channels, out_height, out_width)
        library.maxpool2d(
            address(x),
            address(out),
            ctypes.c_int64(batch * channels),
            ctypes.c_int64(height),
            ctypes.c_int64(width),
            ctypes.c_int64(out_height),
            ctypes.c_int64(out_width),
        )
        return out
