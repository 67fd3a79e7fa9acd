"""Argmax: a block is searched only if something in it beats the best so far; a NaN wins."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

constexpr int64_t BLOCK = 1;  // tune: 1 16 32 64 128 256

extern "C" void argmax_rows(const float* x, int64_t* out, int64_t rows, int64_t cols) {
    const int64_t blocks = cols / BLOCK;
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = x + r * cols;
        float best = row[0];
        int64_t position = 0;
        for (int64_t b = 0; b < blocks; ++b) {
            const float* block = row + b * BLOCK;
            int32_t better = 0;
            for (int64_t l = 0; l < BLOCK; ++l) {
                better |= !(block[l] <= best);
            }
            if (better) {
                for (int64_t l = 0; l < BLOCK; ++l) {
                    if (!(block[l] <= best) && best == best) {
                        best = block[l];
                        position = b * BLOCK + l;
                    }
                }
            }
        }
        for (int64_t c = blocks * BLOCK; c < cols; ++c) {
            if (!(row[c] <= best) && best == best) {
                best = row[c];
                position = c;
            }
        }
        out[r] = position;
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "argmax_rows",
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
        out = torch.empty(rows, dtype=torch.int64)
        library.argmax_rows(address(x), address(out), ctypes.c_int64(rows), ctypes.c_int64(cols))
        return out
