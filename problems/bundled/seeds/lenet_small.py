"""LeNet-like network: naive scalar seed with direct convolutions, image by image."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

constexpr int64_t ROWS = 1;  // tune: 1 2 4 8
constexpr int64_t COLUMNS = 1;  // tune: 1 2 4 8
static_assert(8 % ROWS == 0 && 8 % COLUMNS == 0, "tiles must divide both output sizes, 24 and 8");

// out[m][i][j] = relu(bias[m] + 5x5 window of in at (i, j) . weight[m]), in tiles of ROWS x COLUMNS.
static inline void convolve_relu(const float* in, const float* weight, const float* bias, float* out,
                                 int64_t in_maps, int64_t out_maps, int64_t size) {
    const int64_t out_size = size - 4;
    for (int64_t m = 0; m < out_maps; ++m) {
        for (int64_t tile = 0; tile < out_size / ROWS * (out_size / COLUMNS); ++tile) {
            const int64_t top = tile / (out_size / COLUMNS) * ROWS;
            const int64_t left = tile % (out_size / COLUMNS) * COLUMNS;
            float total[ROWS][COLUMNS];
            for (int64_t i = 0; i < ROWS; ++i) {
                for (int64_t j = 0; j < COLUMNS; ++j) {
                    total[i][j] = bias[m];
                }
            }
            for (int64_t c = 0; c < in_maps; ++c) {
                for (int64_t tap = 0; tap < 25; ++tap) {
                    const float* window = in + (c * size + top + tap / 5) * size + left + tap % 5;
                    const float factor = weight[(m * in_maps + c) * 25 + tap];
                    for (int64_t i = 0; i < ROWS; ++i) {
                        for (int64_t j = 0; j < COLUMNS; ++j) {
                            total[i][j] += factor * window[i * size + j];
                        }
                    }
                }
            }
            for (int64_t i = 0; i < ROWS; ++i) {
                for (int64_t j = 0; j < COLUMNS; ++j) {
                    const float value = total[i][j];
                    out[(m * out_size + top + i) * out_size + left + j] = value < 0.0f ? 0.0f : value;
                }
            }
        }
    }
}

// The larger of two numbers; a NaN wins.
static inline float larger(float a, float b) {
    return b > a || b != b ? b : a;
}

static inline void pool(const float* in, float* out, int64_t maps, int64_t size) {
    const int64_t half = size / 2;
    for (int64_t i = 0; i < maps * half; ++i) {
        const float* upper = in + 2 * i * size;
        const float* lower = upper + size;
        for (int64_t j = 0; j < half; ++j) {
            const float top = larger(upper[2 * j], upper[2 * j + 1]);
            out[i * half + j] = larger(top, larger(lower[2 * j], lower[2 * j + 1]));
        }
    }
}

static inline void linear(const float* in, const float* weight, const float* bias, float* out, int64_t inputs,
                          int64_t outputs) {
    for (int64_t j = 0; j < outputs; ++j) {
        float total = bias[j];
        for (int64_t k = 0; k < inputs; ++k) {
            total += in[k] * weight[j * inputs + k];
        }
        out[j] = total;
    }
}

extern "C" void lenet_small(const float* x, const float* w1, const float* b1, const float* w2,
                            const float* b2, const float* w3, const float* b3, const float* w4,
                            const float* b4, float* out, int64_t batch, int64_t classes) {
    for (int64_t n = 0; n < batch; ++n) {
        float maps[6 * 24 * 24];
        float pooled[6 * 12 * 12];
        float hidden[64];
        convolve_relu(x + n * 28 * 28, w1, b1, maps, 1, 6, 28);
        pool(maps, pooled, 6, 24);
        convolve_relu(pooled, w2, b2, maps, 6, 16, 12);
        pool(maps, pooled, 16, 8);
        linear(pooled, w3, b3, hidden, 256, 64);
        for (int64_t j = 0; j < 64; ++j) {
            hidden[j] = hidden[j] < 0.0f ? 0.0f : hidden[j];
        }
        linear(hidden, w4, b4, out + n * classes, 64, classes);
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "lenet_small",
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
    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, classes)

    def forward(self, x):
        x = x.contiguous()
        classes = self.fc2.bias.shape[0]
        out = torch.empty(x.shape[0], classes)
        layers = (self.conv1, self.conv2, self.fc1, self.fc2)
        parameters = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
        library.lenet_small(
            address(x),
            *map(address, parameters),
            address(out),
            ctypes.c_int64(x.shape[0]),
            ctypes.c_int64(classes),
        )
        return out
