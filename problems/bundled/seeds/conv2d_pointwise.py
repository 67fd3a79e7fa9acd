"""1x1 convolution: one output channel and a few positions at a time."""

import ctypes

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

constexpr int64_t TILE = 1;  // tune: 1 16 32 64 128 256

extern "C" void conv2d_pointwise(const float* x, const float* weight, const float* bias, float* out, int64_t batch,
                                 int64_t in_channels, int64_t out_channels, int64_t positions) {
    const int64_t tiles = (positions + TILE - 1) / TILE;
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t o = 0; o < out_channels; ++o) {
            for (int64_t t = 0; t < tiles; ++t) {
                const int64_t first = t * TILE;
                const int64_t width = positions - first < TILE ? positions - first : TILE;
                float sums[TILE] = {};
                for (int64_t c = 0; c < in_channels; ++c) {
                    const float factor = weight[o * in_channels + c];
                    const float* plane = x + (b * in_channels + c) * positions + first;
                    for (int64_t l = 0; l < width; ++l) {
                        sums[l] += factor * plane[l];
                    }
                }
                for (int64_t l = 0; l < width; ++l) {
                    out[(b * out_channels + o) * positions + first + l] = sums[l] + bias[o];
                }
            }
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "conv2d_pointwise",
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
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=1)

    def forward(self, x):
        x = x.contiguous()
        batch, in_channels, height, width = x.shape
        out_channels = self.conv.weight.shape[0]
        out = x.new_empty(batch, out_channels, height, width)
        library.conv2d_pointwise(
            address(x),
            address(self.conv.weight),
            address(self.conv.bias),
            address(out),
            ctypes.c_int64(batch),
            ctypes.c_int64(in_channels),
            ctypes.c_int64(out_channels),
            ctypes.c_int64(height * width),
        )
        return out
