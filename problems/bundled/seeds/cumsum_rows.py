"""Running sums: a few rows at a time, from left to right."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

constexpr int64_t ROWS = 1;  // tune: 1 2 4 8 16

extern "C" void cumsum_rows(const float* x, float* out, int64_t rows, int64_t cols) {
    const int64_t blocks = (rows + ROWS - 1) / ROWS;
    for (int64_t b = 0; b < blocks; ++b) {
        const int64_t first = b * ROWS;
        const int64_t count = rows - first < ROWS ? rows - first : ROWS;
        double sums[ROWS] = {};
        for (int64_t c = 0; c < cols; ++c) {
            for (int64_t l = 0; l < count; ++l) {
                sums[l] += x[(first + l) * cols + c];
                out[(first + l) * cols + c] = static_cast<float>(sums[l]);
            }
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "cumsum_rows",
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
        rows, cols = x.shape
        out = torch.empty_like(x)
        library.cumsum_rows(address(x), address(out), ctypes.c_int64(rows), ctypes.c_int64(cols))
        return out
