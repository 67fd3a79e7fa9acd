"""Product of lower triangles: multiples of the rows of b added up, zeros skipped."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

constexpr int64_t ROWS = 1;  // tune: 1 4 8 16 32

extern "C" void matmul_triangular(const float* a, const float* b, float* out, int64_t size) {
    const int64_t blocks = (size + ROWS - 1) / ROWS;
    for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = block * ROWS;
        const int64_t last = first + ROWS < size ? first + ROWS : size;
        for (int64_t i = first; i < last; ++i) {
            for (int64_t j = 0; j < size; ++j) {
                out[i * size + j] = 0.0f;
            }
        }
        for (int64_t k = 0; k < last; ++k) {
            for (int64_t i = first > k ? first : k; i < last; ++i) {
                const float factor = a[i * size + k];
                for (int64_t j = 0; j <= k; ++j) {
                    out[i * size + j] += factor * b[k * size + j];
                }
            }
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "matmul_triangular",
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
        out = torch.empty_like(a)
        library.matmul_triangular(address(a), address(b), address(out), ctypes.c_int64(a.shape[0]))
        return out
