"""Every legal move, compiled and run, gives what the unchanged kernel gives."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from mutators.cpp.catalogue import RECIPES, everywhere, finders
from mutators.cpp.moves import apply_moves
from mutators.proposal import Refusal
from mutators.source import KernelSource, parse_source

HEAD = 'extern "C" void kernel(const float* x, const float* y, float* out, int64_t n, int64_t m) {\n'

# Called with n = 61, m = 83; x and y hold n*m numbers, out n*m.
KERNELS = {
    "elementwise": HEAD
    + """    for (int64_t i = 0; i < n * m; ++i) {
        const float v = x[i];
        out[i] = 0.5 * v * (1.0 + tanh(0.79 * (v + 0.044715 * std::pow(v, 3)))) + exp(y[i]) / (1.0f + std::exp(-v));
    }
}
""",
    "choice": HEAD
    + """    for (int64_t i = 0; i < n * m; ++i) {
        const float soft = x[i] > 1.0f ? x[i] : std::log1p(std::exp(x[i]));
        const float next = i + 1 < n * m ? std::exp(y[i + 1]) : 0.0f;
        out[i] = x[i] * std::tanh(soft) + next;
    }
}
""",
    "double": HEAD
    + """    double total = 0.0;
    for (int64_t i = 0; i < n * m; ++i) total += double(x[i]) * y[i];
    for (int64_t i = 0; i < n * m; ++i) out[i] = x[i] / total + std::log1p(std::fabs(y[i])) + std::expm1(x[i]);
}
""",
    "softmax": HEAD
    + """    for (int64_t r = 0; r < n; ++r) {
        const float* row = x + r * m;
        float* target = out + r * m;
        float largest = -INFINITY;
        for (int64_t c = 0; c < m; ++c) {
            if (row[c] > largest) largest = row[c];
        }
        float sum = 0.0f;
        for (int64_t c = 0; c < m; ++c) {
            target[c] = std::exp(row[c] - largest);
            sum += target[c];
        }
        for (int64_t c = 0; c < m; ++c) target[c] = target[c] / sum;
    }
}
""",
    "matmul": HEAD  # (n, m) times (m, n)
    + """    for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j) {
            float acc = 0.0f;
            for (int64_t k = 0; k < m; ++k) {
                acc += x[i * m + k] * y[k * n + j];
            }
            out[i * n + j] = acc;
        }
    }
}
""",
    "transpose": HEAD
    + """    for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < m; ++j) {
            out[j * n + i] = x[i * m + j] + y[i * m + j];
        }
    }
}
""",
    "columns": HEAD  # maximum and mean of every column, both accumulators at once
    + """    for (int64_t c = 0; c < m; ++c) {
        float top = -INFINITY, sum = 0.0f;
        for (int64_t r = 0; r < n; ++r) {
            if (x[r * m + c] == 3.0f) continue;
            top = std::max(top, x[r * m + c]);
            sum += y[r * m + c];
        }
        sum /= n;
        out[c] = top - sum;
    }
    for (int64_t i = m; i < n * m; ++i) out[i] = 0;
}
""",
    "passes": HEAD  # neighbouring loops that may be fused
    + """    for (int64_t i = 0; i < n * m; ++i) out[i] = x[i] + 1.0f;
    for (int64_t k = 0; k < n * m; ++k) { out[k] = out[k] * y[k]; }
    float low = 1e30f;
    for (int64_t i = 0; i < n * m; ++i) low = y[i] < low ? y[i] : low;
    out[0] = low;
}
""",
    "window": HEAD  # a pooling window with guards, a helper and loops inside
    + """    for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < m; ++j) {
            float sum = 0.0f;
            for (int64_t k = 0; k < 3; ++k) {
                const int64_t row = i + k - 1;
                if (row < 0 || row >= n) continue;
                for (int64_t l = 0; l < 3; ++l) {
                    const int64_t column = j + l - 1;
                    if (column < 0 || column >= m) continue;
                    sum += weight(k, l) * x[row * m + column];
                }
            }
            out[i * m + j] = sum + erff(y[i * m + j]);
        }
    }
}
""",
    "accumulate": HEAD  # sums into the elements of a row
    + """    for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < m; ++j) out[i * m + j] = 0.0f;
        for (int64_t k = 0; k < n; ++k) {
            for (int64_t j = 0; j < m; ++j) {
                out[i * m + j] += x[i * m + k] * y[k * m + j];
            }
        }
    }
}
""",
}
PRELUDE = """#include <cmath>
#include <cstdint>

static inline float weight(int64_t k, int64_t l) { return 0.25f * (k + 1) + 0.125f * l; }

"""

CHILD = """
import ctypes, json, sys
import numpy
library = ctypes.CDLL(sys.argv[1])
count = int(sys.argv[2])
random = numpy.random.default_rng(3)
n, m = 61, 83
x, y = (random.normal(size=n * m).astype(numpy.float32) for _ in range(2))
worst = []
for number in range(count):
    out = numpy.full(n * m, 7, numpy.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y, out)]
    getattr(library, f"kernel_{number}")(*pointers, ctypes.c_int64(n), ctypes.c_int64(m))
    if number == 0:
        expected = out
    scale = numpy.abs(expected).max()
    worst.append(float(numpy.abs(out.astype(float) - expected).max() / scale))
print(json.dumps(worst))
"""


def variants(kernel: KernelSource) -> list[tuple[str, str, bool]]:
    """(what was done, C++ text, whether the bits must stay) for the kernel itself, each move, each recipe."""
    found = [("unchanged", kernel.cpp, True)]
    for kind, find in finders().items():
        for move in find(kernel).moves:
            changed = apply_moves(kernel, (move,))
            assert not isinstance(changed, Refusal), (kind, move.site, changed)
            if changed.cpp != kernel.cpp:
                found.append((f"{kind} at {move.site}", changed.cpp, not move.label))
    for name, kinds in RECIPES.items():
        current, exact = kernel, True
        for kind in kinds:
            current, moves = everywhere(current, kind)
            exact &= not any(move.label for move in moves)
        found.append((name, current.cpp, exact))
    return found


def run_all(texts: list[str], folder) -> list[float]:
    """Largest difference of each text's outcome from the first one's; all compiled as one file, run in a child."""
    parts = ["#include <algorithm>\n#include <cmath>\n#include <cstdint>\n#include <limits>\n"]
    for number, cpp in enumerate(texts):
        body = re.sub(r"#include.*", "", cpp)
        body = re.sub(r"\bkernel\(", f"kernel_{number}(", body)
        parts.append(f"namespace v{number} {{\n{body}\n}}\n")
    source, library = folder / "all.cpp", folder / "all.so"
    source.write_text("".join(parts))
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-fopenmp", "-shared", "-fPIC", "-w"]
    built = subprocess.run(["g++", *flags, "-o", library, source], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:4000]
    command = [sys.executable, "-c", CHILD, str(library), str(len(texts))]
    done = subprocess.run(command, capture_output=True, text=True, env={"OMP_NUM_THREADS": "4"})
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", KERNELS)
def test_every_move_and_recipe_gives_the_results_of_the_unchanged_kernel(name, lean, tmp_path):
    kernel = parse_source(lean(PRELUDE + KERNELS[name]))
    found = variants(kernel)
    differences = run_all([cpp for _, cpp, _ in found], tmp_path)
    for (what, cpp, exact), difference in zip(found, differences, strict=True):
        limit = 0.0 if exact else 2e-6
        assert difference <= limit, f"{what}: off by {difference}\n{cpp}"


EXPECTED = {
    "elementwise": {"omp_parallel", "omp_simd", "vector_math", "power", "float_literals", "float_functions", "ivdep"},
    "double": {"omp_parallel", "split_reduction", "reciprocal"},
    "softmax": {"omp_parallel", "omp_parallel_dynamic", "omp_simd", "split_reduction", "vector_math", "reciprocal"},
    "matmul": {"omp_parallel", "omp_collapse", "block_accumulators", "interchange", "tile", "split_reduction"},
    "transpose": {"omp_parallel", "omp_collapse", "interchange", "tile", "omp_simd"},
    "columns": {"omp_parallel", "block_accumulators"},
    "passes": {"fuse", "omp_parallel", "split_reduction", "restrict"},
    "window": {"omp_parallel", "omp_collapse", "block_accumulators", "vector_math"},
    "accumulate": {"interchange", "tile", "omp_simd", "unroll"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_moves_that_an_engineer_would_make_are_found(name, lean):
    kernel = parse_source(lean(PRELUDE + KERNELS[name]))
    kinds = {kind for kind, find in finders().items() if find(kernel).moves}
    assert EXPECTED[name] <= kinds, f"missing {EXPECTED[name] - kinds}"


def test_a_choice_that_guards_a_read_stays_a_branch(lean):
    kernel = parse_source(lean(PRELUDE + KERNELS["choice"]))
    changed, _ = everywhere(kernel, "vector_math")
    assert "kb_select(x[i] > 1.0f, x[i], kb_log1p(kb_exp(x[i])))" in changed.cpp
    assert "i + 1 < n * m ? kb_exp(y[i + 1]) : 0.0f" in changed.cpp
