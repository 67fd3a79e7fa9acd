"""A run and its history for the tests of KernelBench's layout, with kernels that build."""

import hashlib
from dataclasses import replace

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.run import Run

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2.0

def get_inputs():
    return [torch.rand(64, 32)]

def get_init_inputs():
    return []
"""

KERNEL = '''"""Doubles every element."""
import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

constexpr float FACTOR = 2.0f;

extern "C" void twice(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = FACTOR * x[i];
}
"""

library = ctypes.CDLL(
    load_inline("twice", SOURCE, functions=None, no_implicit_headers=True, is_python_module=False,
                extra_cflags=CFLAGS, extra_ldflags=CFLAGS)
)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        library.twice(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()),
                      ctypes.c_int64(x.numel()))
        return out
'''

RUN = Run(
    id="abcdefgh",
    name="twice run/1",
    problem_id="twice",
    problem_sha256=hashlib.sha256(REFERENCE.encode()).hexdigest(),
    problem_source=REFERENCE,
    backend="cpp",
    device="cpu",
    precision="fp32",
    config={},
    seed=1,
    budget={},
    git_commit="5495106",
    started_at="2026-03-01T09:00:00+00:00",
)


def evaluated(number, source, speedup=None, **fields):
    times = {}
    if speedup is not None:
        kernel_ms = 1.23456 / speedup
        times = {"kernel_ms": kernel_ms, "kernel_ms_ci": (kernel_ms, kernel_ms), "reference_ms": 1.23456}
        times |= {"speedup": speedup, "speedup_ci": (speedup, speedup), "rounds": 40, "draws": 62}
    values = {
        "verdict": Verdict.CORRECT if speedup else Verdict.TIMEOUT,
        "reason": "r",
        "device_name": "Some CPU",
    }
    values |= {
        "problem": "twice",
        "backend": "cpp",
        "source_sha256": hashlib.sha256(source.encode()).hexdigest(),
    }
    candidate = Candidate(f"abcdefgh-{number:06d}", number, 0, 0, "cpp", source)
    return Evaluated(candidate, Evaluation(**(values | times | fields)))


SMALL = KERNEL.replace("Doubles", "Doubles frugally")
HISTORY = [
    evaluated(0, SMALL, 0.5, peak_mem_bytes=10, error_ratio=1.0),
    evaluated(1, KERNEL.replace("Doubles", "Never doubles")),
    evaluated(2, KERNEL, 1.0, peak_mem_bytes=20, error_ratio=1.0),
    evaluated(3, KERNEL, 0.9, peak_mem_bytes=19, error_ratio=1.0),
    evaluated(4, KERNEL.replace("Doubles", "Doubles slowly"), 0.4, peak_mem_bytes=20, error_ratio=1.0),
]


def numbered(problem: str, **fields: str) -> Run:
    return replace(RUN, id=problem.replace("/", ""), name=problem, problem_id=problem, **fields)


def owned(run: Run, history: list[Evaluated]) -> list[Evaluated]:
    """The history with ids of that run."""
    return [
        replace(one, candidate=replace(one.candidate, id=f"{run.id}-{one.candidate.number:06d}")) for one in history
    ]
