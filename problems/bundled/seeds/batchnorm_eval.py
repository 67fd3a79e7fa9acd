"""Batch normalisation with stored statistics: the formula, element by element."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void batchnorm_eval(const float* x, const float* mean, const float* var, const float* weight,
                               const float* bias, float* out, int64_t batch, int64_t channels, int64_t positions,
                               float eps) {
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t c = 0; c < channels; ++c) {
            const float* plane = x + (b * channels + c) * positions;
            float* target = out + (b * channels + c) * positions;
            const float root = std::sqrt(var[c] + eps);
            for (int64_t p = 0; p < positions; ++p) {
                target[p] = (plane[p] - mean[c]) / root * weight[c] + bias[c];
            }
        }
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "batchnorm_eval",
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
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(0.5 + torch.rand(channels))
        self.bias = nn.Parameter(torch.randn(channels))
        self.register_buffer("running_mean", torch.randn(channels))
        self.register_buffer("running_var", 0.5 + torch.rand(channels))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        batch, channels, height, width = x.shape
        library.batchnorm_eval(
            address(x),
            address(self.running_mean),
            address(self.running_var),
            address(self.weight),
            address(self.bias),
            address(out),
            ctypes.c_int64(batch),
            ctypes.c_int64(channels),
            ctypes.c_int64(height * width),
            ctypes.c_float(self.eps),
        )
        return out
