"""Average pooling: every window summed in full, a few windows at a time."""

import ctypes

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

constexpr int64_t TILE = 1;  // tune: 1 16 32 64 128 256

extern "C" void avgpool1d(const float* x, float* out, int64_t rows, int64_t length, int64_t window) {
    const int64_t count = length - window + 1;
    const int64_t tiles = (count + TILE - 1) / TILE;
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t t = 0; t < tiles; ++t) {
            const int64_t first = t * TILE;
            const int64_t width = count - first < TILE ? count - first : TILE;
            float sums[TILE] = {};
            for (int64_t w = 0; w < window; ++w) {
                const float* row = x + r * length + first + w;
                for (int64_t l = 0; l < width; ++l) {
                    sums[l] += row[l];
                }
            }
            for (int64_t l = 0; l < width; ++l) {
                out[r * count + first + l] = sums[l] / window;
            }
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "avgpool1d",
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
    def __init__(self, window):
        super().__init__()
        self.window = window

    def forward(self, x):
        x = x.contiguous()
        batch, channels, length = x.shape
        out = x.new_empty(batch, channels, length - self.window + 1)
        library.avgpool1d(
            address(x),
            address(out),
            ctypes.c_int64(batch * channels),
            ctypes.c_int64(length),
            ctypes.c_int64(self.window),
        )
        return out
