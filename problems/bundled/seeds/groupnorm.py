"""Group normalisation: mean, variance and affine map of one group after another."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cmath>
#include <cstdint>

constexpr int64_t LANES = 1;  // tune: 1 4 8 16 32 64

extern "C" void groupnorm(const float* x, const float* weight, const float* bias, float* out, int64_t batch,
                          int64_t channels, int64_t positions, int64_t groups, float eps) {
    const int64_t members = channels / groups;
    const int64_t size = members * positions;
    const int64_t blocks = size / LANES;
    for (int64_t g = 0; g < batch * groups; ++g) {
        const float* values = x + g * size;
        double partial[LANES] = {};
        for (int64_t b = 0; b < blocks; ++b) {
            for (int64_t l = 0; l < LANES; ++l) {
                partial[l] += values[b * LANES + l];
            }
        }
        double sum = 0.0;
        for (int64_t l = 0; l < LANES; ++l) {
            sum += partial[l];
            partial[l] = 0.0;
        }
        for (int64_t i = blocks * LANES; i < size; ++i) {
            sum += values[i];
        }
        const double mean = sum / size;
        for (int64_t b = 0; b < blocks; ++b) {
            for (int64_t l = 0; l < LANES; ++l) {
                const double centred = values[b * LANES + l] - mean;
                partial[l] += centred * centred;
            }
        }
        double squares = 0.0;
        for (int64_t l = 0; l < LANES; ++l) {
            squares += partial[l];
        }
        for (int64_t i = blocks * LANES; i < size; ++i) {
            squares += (values[i] - mean) * (values[i] - mean);
        }
        const float centre = static_cast<float>(mean);
        const float root = static_cast<float>(std::sqrt(squares / size + eps));
        for (int64_t m = 0; m < members; ++m) {
            const int64_t channel = (g % groups) * members + m;
            const float* source = values + m * positions;
            float* target = out + g * size + m * positions;
            for (int64_t p = 0; p < positions; ++p) {
                target[p] = (source[p] - centre) / root * weight[channel] + bias[channel];
            }
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "groupnorm",
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
    def __init__(self, groups, channels, eps=1e-5):
        super().__init__()
        self.groups = groups
        self.eps = eps
        self.weight = nn.Parameter(0.5 + torch.rand(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        batch, channels, height, width = x.shape
        library.groupnorm(
            address(x),
            address(self.weight),
            address(self.bias),
            address(out),
            ctypes.c_int64(batch),
            ctypes.c_int64(channels),
            ctypes.c_int64(height * width),
            ctypes.c_int64(self.groups),
            ctypes.c_float(self.eps),
        )
        return out
