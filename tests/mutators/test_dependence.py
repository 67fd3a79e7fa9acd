"""Loops whose iterations depend on each other are refused; look-alikes that do not are accepted."""

from __future__ import annotations

import pytest

from mutators.cpp import accumulators, nests, pragmas
from mutators.source import parse_source

HEAD = "#include <cmath>\n#include <vector>\n{before}\n"
HEAD += 'extern "C" void kernel(const float* x, float* out, int64_t n, int64_t m) {{\n{body}\n}}\n'
FOR_I = "for (int64_t i = 0; i < n; ++i) "

DEPENDENT = {
    "prefix sum in a scalar": "float s = 0; " + FOR_I + "{ s += x[i]; out[i] = s; }",
    "prefix sum in the array": "for (int64_t i = 1; i < n; ++i) out[i] += out[i - 1];",
    "stencil in place": "for (int64_t i = 1; i < n; ++i) { out[i] = 0.5f * (out[i] + out[i + 1]); }",
    "search that breaks": FOR_I + "{ if (x[i] > 0) break; out[i] = x[i]; }",
    "search that returns": FOR_I + "{ if (x[i] > 0) return; out[i] = x[i]; }",
    "outer scalar carried along": "float last = 0; " + FOR_I + "{ out[i] = last; last = x[i]; }",
    "scratch shared by iterations": "float tmp[8]; "
    + FOR_I
    + "{ for (int64_t j = 0; j < 8; ++j) tmp[j] = x[i * 8 + j]; out[i] = tmp[0] + tmp[7]; }",
    "vector shared by iterations": "std::vector<float> tmp(m); " + FOR_I + "{ tmp[0] = x[i]; out[i] = tmp[0]; }",
    "scatter by data": FOR_I + "{ out[(int)x[i]] += 1.0f; }",
    "every iteration writes one element": FOR_I + "{ out[0] = x[i]; }",
    "halved index": FOR_I + "{ out[i / 2] = x[i]; }",
    "index by remainder": FOR_I + "{ out[i + i % 2] = x[i]; }",
    "rows that overlap": FOR_I + "{ for (int64_t j = 0; j <= m; ++j) out[i * m + j] = x[j]; }",
    "row length unrelated to its stride": FOR_I + "{ for (int64_t j = 0; j < n; ++j) out[i * m + j] = x[j]; }",
    "pointer that moves": "float* p = out; " + FOR_I + "{ *p++ = x[i]; }",
    "index counted by hand": "int64_t k = 0; " + FOR_I + "{ if (x[i] > 0) { out[k] = x[i]; k++; } }",
    "static local": FOR_I + "{ static float seen = 0; seen += x[i]; out[i] = seen; }",
    "reference to an outer scalar": "float s = 0; float& r = s; " + FOR_I + "{ r += x[i]; out[i] = s; }",
    "pointer to an outer scalar": "float s = 0; float* p = &s; " + FOR_I + "{ *p += x[i]; out[i] = s; }",
    "unknown function": FOR_I + "{ out[i] = next_random(x[i]); }",
    "function that writes a global": FOR_I + "{ out[i] = counted(x[i]); }",
    "maximum with its place": "float top = 0; int64_t at = 0; "
    + FOR_I
    + "{ if (x[i] > top) { top = x[i]; at = i; } } out[0] = at;",
    "two operators on one scalar": "float s = 1; " + FOR_I + "{ s += x[i]; s *= 2.0f; } out[0] = s;",
    "reversed onto itself": FOR_I + "{ out[i] = out[n - 1 - i]; }",
    "read across iterations": FOR_I + "{ out[i] = x[i]; if (i > 0) out[i] += out[(i - 1) * m]; }",
    "lambda": FOR_I + "{ auto f = [&](float v) { out[0] += v; }; f(x[i]); }",
    "macro with an effect": FOR_I + "{ BUMP; out[i] = x[i]; }",
    "array of pointers": "float* rows[2] = {out, out}; " + FOR_I + "{ rows[0][0] = x[i]; out[i] = rows[0][0]; }",
    "reference to an outer vector": "std::vector<float> v(m); "
    + FOR_I
    + "{ std::vector<float>& w = v; w[0] = x[i]; out[i] = w[0]; }",
}
BEFORE = """static int calls = 0;
static float counted(float v) { calls += 1; return v * calls; }
float next_random(float v);
#define BUMP out[0] += 1.0f
"""

INDEPENDENT = {
    "plain": FOR_I + "out[i] = x[i] + 1;",
    "rows by pointer": FOR_I + "{ float* row = out + i * m; for (int64_t j = 0; j < m; ++j) row[j] = x[j]; }",
    "rows with a remainder": "const int64_t blocks = m / 8; "
    + FOR_I
    + "{ for (int64_t b = 0; b < blocks; ++b) for (int64_t l = 0; l < 8; ++l) out[i * m + b * 8 + l] = x[l]; }",
    "own scratch": FOR_I + "{ float tmp[8]; for (int64_t j = 0; j < 8; ++j) tmp[j] = x[i + j]; out[i] = tmp[3]; }",
    "triangle": "for (int64_t i = 0; i < n; ++i) { for (int64_t j = 0; j <= i; ++j) out[i * n + j] = x[j]; }",
    "tiles": "for (int64_t t = 0; t < n; t += 16) for (int64_t i = t; i < std::min(t + 16, n); ++i) out[i] = x[i];",
    "columns of a block": "for (int64_t t = 0; t < m; t += 4) { const int64_t w = m - t < 4 ? m - t : 4; "
    "for (int64_t i = 0; i < n; ++i) for (int64_t l = 0; l < w; ++l) out[i * m + t + l] = x[l]; }",
    "sum": "float s = 0; " + FOR_I + "{ const float v = x[i]; s += v * v; } out[0] = s;",
    "maximum by comparison": "float s = x[0]; " + FOR_I + "{ if (x[i] > s) { s = x[i]; } } out[0] = s;",
    "minimum by choice": "float s = x[0]; " + FOR_I + "s = s < x[i] ? s : x[i]; out[0] = s;",
    "helper without effects": FOR_I + "{ out[i] = squared(x[i]); }",
    "halves": "const int64_t h = m / 2; " + FOR_I + "{ for (int64_t j = 0; j < h; ++j) { "
    "out[i * m + j] = x[j]; out[i * m + h + j] = x[h + j]; } }",
}
PURE = "static inline float squared(float v) { float r = v; r *= v; return r; }\n"


def first_loop(find, lean, body, before=""):
    """(sites of moves, reasons by site) on the first loop of a body."""
    kernel = parse_source(lean(HEAD.format(before=before, body=body)))
    found = find(kernel)
    return {move.site for move in found.moves}, dict(found.refusals)


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_loop_with_dependent_iterations_gets_neither_threads_nor_lanes(name, lean):
    for find in (pragmas.find_parallel, pragmas.find_simd, pragmas.find_ivdep, accumulators.find_split):
        moved, reasons = first_loop(find, lean, DEPENDENT[name], BEFORE)
        assert "kernel/i" not in moved, f"{name}: {find.__name__} accepted it"
    reasons = first_loop(pragmas.find_parallel, lean, DEPENDENT[name], BEFORE)[1]
    assert reasons["kernel/i"]


@pytest.mark.parametrize("name", INDEPENDENT)
def test_a_loop_with_independent_iterations_gets_threads(name, lean):
    moved, reasons = first_loop(pragmas.find_parallel, lean, INDEPENDENT[name], PURE)
    assert moved & {"kernel/i", "kernel/t"}, reasons


def test_loops_that_carry_a_dependence_both_ways_are_not_interchanged(lean):
    body = (
        "for (int64_t i = 1; i < n; ++i) { for (int64_t j = 0; j < m; ++j) { "
        "out[i * m + j] = out[(i - 1) * m + j + 1]; } }"
    )
    assert not first_loop(nests.find_interchange, lean, body)[0]
    assert not first_loop(nests.find_tile, lean, body)[0]


def test_a_scalar_sum_over_two_loops_keeps_its_order(lean):
    body = "float s = 0; for (int64_t i = 0; i < n; ++i) { for (int64_t j = 0; j < m; ++j) { s += x[i * m + j]; } }"
    moved, reasons = first_loop(nests.find_interchange, lean, body)
    assert not moved and "order" in reasons["kernel/i"]


def test_loops_whose_second_reads_a_neighbour_are_not_fused(lean):
    body = FOR_I + "out[i] = x[i]; for (int64_t k = 0; k < n; ++k) { out[k + m] = 0.5f * out[k + 1]; }"
    assert not first_loop(nests.find_fusion, lean, body)[0]


def test_a_loop_that_needs_the_sum_of_the_first_is_not_fused_with_it(lean):
    body = "float s = 0; " + FOR_I + "s += x[i]; " + FOR_I + "out[i] = x[i] / s;"
    moved, reasons = first_loop(nests.find_fusion, lean, body)
    assert not moved and "sums up" in reasons["kernel/i"]


def test_sums_are_not_blocked_where_a_value_before_them_is_overwritten_by_the_loop(lean):
    body = (
        FOR_I + "{ const float first = out[i]; float s = 0; "
        "for (int64_t k = 0; k < m; ++k) { s += x[k]; out[i] = s * 0.0f; } out[i] = s + first; }"
    )
    assert not first_loop(accumulators.find_blocked, lean, body)[0]


def test_a_call_that_passes_one_tensor_twice_forbids_threads_and_restrict(lean):
    cpp = HEAD.format(before="", body=FOR_I + "{ out[i] = x[n - 1 - i]; }")
    fine = lean(cpp).replace("ctypes.c_void_p(y.data_ptr()),\n", "")
    in_place = fine.replace("out = torch.empty_like(x)", "out = x.view(-1)")
    assert parse_source(fine).cpp == parse_source(in_place).cpp
    for find in (pragmas.find_parallel, pragmas.find_restrict):
        assert find(parse_source(fine)).moves
        found = find(parse_source(in_place))
        assert not found.moves and "same array" in found.refusals[0][1]


def test_no_second_openmp_pragma_is_put_on_a_parallel_loop(lean):
    body = "#pragma omp parallel for\n" + FOR_I + "{ for (int64_t j = 0; j < m; ++j) out[i * m + j] = x[j]; }"
    assert not first_loop(pragmas.find_parallel, lean, body)[0]
