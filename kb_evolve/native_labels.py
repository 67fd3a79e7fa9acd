"""Labels for the C++ and CUDA text inside a candidate: what its identifiers name, comments left out."""

from __future__ import annotations

import re

TOKEN = re.compile(
    r"""
    //[^\n]*                          # a comment to the line's end
  | /\*(?:[^*]|\*(?!/))*(?:\*/)?      # a comment between marks, or one that never closes
  | "(?:\\.|[^"\\\n])*"?              # a string
  | '(?:\\.|[^'\\\n])*'?              # a character
  | (?P<name>[A-Za-z_]\w*)
  | (?P<scope>::)
    """,
    re.VERBOSE,
)
"""One pass from left to right: every alternative is linear in what it consumes."""

NAMES = {
    "vendor-library": ("cublas", "cudnn", "cusparse", "cusolver", "cufft", "cutensor", "hipblas", "miopen", "mkl_"),
    "streams": ("cudaStreamCreate", "hipStreamCreate", "getStreamFromPool"),
    "events": ("cudaEventCreate", "cudaEventRecord", "cudaEventElapsedTime", "hipEventCreate"),
    "graphs": ("cudaGraph", "cudaStreamBeginCapture", "hipGraph"),
    "threads": ("pthread_create",),
    "low-precision": (
        "__half",
        "half2",
        "__float2half",
        "__nv_bfloat16",
        "__float2bfloat16",
        "__nv_fp8",
        "__float_to_tf32",
        "cuda_fp16",
        "cuda_bf16",
        "cuda_fp8",
    ),
}
"""Label -> how an identifier begins that earns it."""

SCOPED = {
    "threads": {("std", "thread"), ("std", "jthread"), ("std", "async")},
    "low-precision": {("precision", "tf32"), ("wmma", "half")},
}
"""Label -> pairs `a::b` that earn it."""

TORCH_SCOPES = ("torch", "at", "aten")
TORCH_NAMES = """
    matmul mm bmm addmm baddbmm einsum linear conv1d conv2d conv3d convolution softmax log_softmax relu gelu silu
    sigmoid tanh sum mean var std norm layer_norm group_norm batch_norm rms_norm cumsum cumprod max_pool2d avg_pool2d
    scaled_dot_product_attention
"""
TORCH_COMPUTES = frozenset(TORCH_NAMES.split())
"""Functions of torch's C++ namespaces that do the work of a kernel."""


def native_labels(text: str) -> set[str]:
    """The labels that one C++ or CUDA text earns."""
    words = [match for match in TOKEN.finditer(text) if match.lastgroup]
    names = {match["name"] for match in words if match["name"]}
    found = {label for label, starts in NAMES.items() if any(name.startswith(starts) for name in names)}
    pairs = _scoped([match[0] for match in words])
    found |= {label for label, wanted in SCOPED.items() if pairs & wanted}
    if any(scope in TORCH_SCOPES and name in TORCH_COMPUTES for scope, name in pairs):
        found.add("torch-ops")
    return found


def looks_native(text: str) -> bool:
    """Whether a string of a candidate is C++ or CUDA and not a message."""
    return "{" in text and ";" in text


def _scoped(words: list[str]) -> set[tuple[str, str]]:
    return {
        (words[index - 1], words[index + 1])
        for index, word in enumerate(words)
        if word == "::" and 0 < index < len(words) - 1
    }
