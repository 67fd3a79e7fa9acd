"""Matrix product: one row and a few columns of the answer at a time."""

import ctypes

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

constexpr int64_t TILE = 1;  // tune: 1 16 32 64 128 256

extern "C" void matmul_square(const float* a, const float* b, float* out, int64_t rows, int64_t inner,
                              int64_t cols) {
    const int64_t tiles = (cols + TILE - 1) / TILE;
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t t = 0; t < tiles; ++t) {
            const int64_t first = t * TILE;
            const int64_t width = cols - first < TILE ? cols - first : TILE;
            float sums[TILE] = {};
            for (int64_t k = 0; k < inner; ++k) {
                const float factor = a[i * inner + k];
                const float* row = b + k * cols + first;
                for (int64_t l = 0; l < width; ++l) {
                    sums[l] += factor * row[l];
                }
            }
            for (int64_t l = 0; l < width; ++l) {
                out[i * cols + first + l] = sums[l];
            }
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "matmul_square",
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
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = a.new_empty(a.shape[0], b.shape[1])
        library.matmul_square(
            address(a),
            address(b),
            address(out),
            ctypes.c_int64(a.shape[0]),
            ctypes.c_int64(a.shape[1]),
            ctypes.c_int64(b.shape[1]),
        )
        return out
