"""Counts of each value in each row: one counter raised per element."""

import ctypes

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

extern "C" void histogram_rows(const int64_t* values, int64_t* out, int64_t rows, int64_t cols, int64_t bins) {
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t* row = values + r * cols;
        int64_t* counts = out + r * bins;
        for (int64_t b = 0; b < bins; ++b) {
            counts[b] = 0;
        }
        for (int64_t c = 0; c < cols; ++c) {
            counts[row[c]] += 1;
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "histogram_rows",
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
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, values):
        values = values.contiguous()
        rows, cols = values.shape
        out = values.new_empty(rows, self.bins)
        library.histogram_rows(
            address(values),
            address(out),
            ctypes.c_int64(rows),
            ctypes.c_int64(cols),
            ctypes.c_int64(self.bins),
        )
        return out
