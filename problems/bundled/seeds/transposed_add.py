"""A matrix plus a transpose: small square tiles."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

constexpr int64_t TILE = 2;  // tune: 2 4 8 16 32 64 128

extern "C" void transposed_add(const float* a, const float* b, float* out, int64_t rows, int64_t cols) {
    const int64_t tile_rows = (rows + TILE - 1) / TILE;
    const int64_t tile_cols = (cols + TILE - 1) / TILE;
    for (int64_t ti = 0; ti < tile_rows; ++ti) {
        for (int64_t tj = 0; tj < tile_cols; ++tj) {
            const int64_t last_row = ti * TILE + TILE < rows ? ti * TILE + TILE : rows;
            const int64_t last_col = tj * TILE + TILE < cols ? tj * TILE + TILE : cols;
            for (int64_t i = ti * TILE; i < last_row; ++i) {
                for (int64_t j = tj * TILE; j < last_col; ++j) {
                    out[i * cols + j] = a[i * cols + j] + b[j * rows + i];
                }
            }
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "transposed_add",
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
        rows, cols = a.shape
        out = torch.empty_like(a)
        library.transposed_add(address(a), address(b), address(out), ctypes.c_int64(rows), ctypes.c_int64(cols))
        return out
