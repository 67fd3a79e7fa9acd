"""The branch-free float functions against float64 over the whole range."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mutators.cpp.vector_math import TEXTS, definitions

LIMITS = {"exp": 1.1, "expm1": 1.6, "log": 1.0, "log1p": 1.6, "tanh": 1.6, "erf": 2.4}
"""Largest allowed error in units in the last place."""

CHILD = """
import ctypes, json, sys
import numpy
library = ctypes.CDLL(sys.argv[1])
random = numpy.random.default_rng(0)
bits = random.integers(0, 2**32, 300_000, dtype=numpy.uint64).astype(numpy.uint32).view(numpy.float32)
ranges = [random.uniform(low, high, 100_000) for low, high in ((-20, 20), (-1.2, 1.2), (-110, 95))]
special = [0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1, -1, 88.72284, -103.9, -87.33655, 1e-45, 1.17549435e-38]
x = numpy.concatenate([bits, *ranges, special]).astype(numpy.float32)
found = {}
for name in sys.argv[2].split(","):
    y, exact = numpy.empty_like(x), numpy.empty(x.size)
    for prefix, target in (("ours", y), ("exact", exact)):
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, target)]
        getattr(library, f"{prefix}_{name}")(*pointers, ctypes.c_int64(x.size))
    with numpy.errstate(all="ignore"):
        rounded = exact.astype(numpy.float32)
        wrong = (numpy.isnan(rounded) != numpy.isnan(y)) | (numpy.isinf(rounded) != numpy.isinf(y))
        wrong |= (numpy.signbit(rounded) != numpy.signbit(y)) & ~numpy.isnan(rounded)
        finite = numpy.isfinite(rounded) & numpy.isfinite(y)
        ulp = numpy.maximum(numpy.spacing(numpy.abs(rounded[finite])).astype(float), 2.0**-149)
        found[name] = [int(wrong.sum()), float((numpy.abs(y[finite] - exact[finite]) / ulp).max())]
print(json.dumps(found))
"""


@pytest.mark.parametrize("flags", [["-O2"], ["-O3", "-march=native", "-fopenmp-simd", "-fno-trapping-math"]])
def test_errors_stay_within_the_documented_bounds_and_special_values_are_right(flags, tmp_path):
    parts = ["#include <cmath>\n#include <cstdint>\n", definitions(set(TEXTS))]
    for name in TEXTS:
        loop = "{\n#pragma omp simd\nfor (int64_t i = 0; i < n; ++i)"
        parts.append(
            f'extern "C" void ours_{name}(const float* x, float* y, int64_t n) {loop} y[i] = kb_{name}(x[i]); }}\n'
        )
        parts.append(
            f'extern "C" void exact_{name}(const float* x, double* y, int64_t n) '
            f"{{ for (int64_t i = 0; i < n; ++i) y[i] = std::{name}((double)x[i]); }}\n"
        )
    (tmp_path / "m.cpp").write_text("".join(parts))
    command = ["g++", "-std=c++17", *flags, "-shared", "-fPIC", "-o", tmp_path / "m.so", tmp_path / "m.cpp"]
    subprocess.run(command, check=True)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "m.so"), ",".join(TEXTS)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for name, (wrong, ulp) in found.items():
        assert wrong == 0, f"{name}: {wrong} results with a wrong sign, infinity or NaN"
        assert ulp <= LIMITS[name], f"{name}: {ulp:.2f} units in the last place"


def test_functions_come_with_what_they_need_and_nothing_twice():
    text = definitions({"tanh", "log1p"})
    assert [f"float kb_{name}(float" in text for name in TEXTS] == [True, False, True, True, True, False]
    assert "kb_expm1_core" not in definitions({"erf"}, present=text)
    assert "float kb_exp(float" not in definitions({"erf"}, present=text)
