"""GELU by its tanh approximation: one scalar loop, tanh from one exponential."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>
#include <cstring>

// exp(x) by range reduction and a polynomial (Cephes expf coefficients), below 2 ulp, without branches.
static inline float power_of_two(int32_t exponent) {
    const int32_t bits = (exponent + 127) * (1 << 23);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float exp_float(float x) {
    float y = x < -104.0f ? -104.0f : x;
    y = y > 89.0f ? 89.0f : y;
    const int32_t k = static_cast<int32_t>(y * 1.44269504f + 256.5f) - 256;
    const float r = (y - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const int32_t half = k >> 1;
    return p * power_of_two(half) * power_of_two(k - half);
}

static inline float tanh_float(float x) {
    return 1.0f - 2.0f / (exp_float(2.0f * x) + 1.0f);
}

extern "C" void gelu_tanh(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const float inner = 0.797884561f * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
        out[i] = 0.5f * x[i] * (1.0f + tanh_float(inner));
    }
}
"""

library = ctypes.CDLL(
    load_inline(
        "gelu_tanh",
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
        out = torch.empty_like(x)
        library.gelu_tanh(address(x), address(out), ctypes.c_int64(x.numel()))
        return out
