"""Diagonal times full matrix: each row scaled by its number."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

extern "C" void diag_matmul(const float* diagonal, const float* matrix, float* out, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) {
            out[i * cols + j] = diagonal[i] * matrix[i * cols + j];
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "diag_matmul",
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
    def forward(self, diagonal, matrix):
        diagonal, matrix = diagonal.contiguous(), matrix.contiguous()
        rows, cols = matrix.shape
        out = torch.empty_like(matrix)
        library.diag_matmul(
            address(diagonal), address(matrix), address(out), ctypes.c_int64(rows), ctypes.c_int64(cols)
        )
        return out
