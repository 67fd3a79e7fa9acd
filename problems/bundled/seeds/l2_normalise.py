"""Columns divided by their lengths: a few columns at a time, down all rows, twice."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cmath>
#include <cstdint>

constexpr int64_t COLUMNS = 1;  // tune: 1 4 16 32 64 128 256

extern "C" void l2_normalise(const float* x, float* out, int64_t rows, int64_t cols) {
    const int64_t blocks = (cols + COLUMNS - 1) / COLUMNS;
    for (int64_t b = 0; b < blocks; ++b) {
        const int64_t first = b * COLUMNS;
        const int64_t width = cols - first < COLUMNS ? cols - first : COLUMNS;
        double squares[COLUMNS] = {};
        float lengths[COLUMNS] = {};
        for (int64_t r = 0; r < rows; ++r) {
            const float* row = x + r * cols + first;
            for (int64_t l = 0; l < width; ++l) {
                squares[l] += static_cast<double>(row[l]) * row[l];
            }
        }
        for (int64_t l = 0; l < width; ++l) {
            const float length = static_cast<float>(std::sqrt(squares[l]));
            lengths[l] = length < 1e-12f ? 1e-12f : length;
        }
        for (int64_t r = 0; r < rows; ++r) {
            const float* row = x + r * cols + first;
            float* target = out + r * cols + first;
            for (int64_t l = 0; l < width; ++l) {
                target[l] = row[l] / lengths[l];
            }
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "l2_normalise",
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
        library.l2_normalise(address(x), address(out), ctypes.c_int64(rows), ctypes.c_int64(cols))
        return out
