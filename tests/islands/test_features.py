"""Coordinates: what was measured comes first, the source text stands in for it."""

from __future__ import annotations

from typing import Any

import pytest

from islands.features import AXES, coordinates


def value(make: Any, axis: str, **changes: Any) -> float:
    return AXES[axis].read(make.evaluated(0, 1.0, **changes))


@pytest.mark.parametrize(
    ("source", "threads"),
    [
        ("for (int i = 0; i < n; ++i) {}", 1),
        ("#pragma omp simd\nfor", 1),
        ("#pragma omp parallel for schedule(static)\nfor", 2),
        ("# pragma  omp for nowait parallel", 2),
        ("std::thread t(work);", 2),
        ("at::parallel_for(0, n, 1, f);", 2),
    ],
)
def test_threads_are_read_from_the_source_when_not_measured(make, source, threads):
    assert value(make, "threads", source=source) == threads
    assert value(make, "threads", source=source, features={"threads": 16}) == 16


@pytest.mark.parametrize(
    ("source", "bits"),
    [
        ('CFLAGS = ["-O2"]', 0),
        ('CFLAGS = ["-O3"]', 128),
        ('CFLAGS = ["-O3", "-march=native"]', 256),
        ("__m512 x = _mm512_setzero_ps();", 512),
        ("__m256 x;", 256),
        ("#pragma omp simd", 128),
    ],
)
def test_vector_bits_are_read_from_the_source_when_not_measured(make, source, bits):
    assert value(make, "vector", source=source) == bits
    assert value(make, "vector", source=source, features={"vector_bits": 64}) == 64


def test_size_counts_lines_of_code_only(make):
    source = "import x\n\n# a comment\n  // another\n#include <a>\n#pragma omp simd\n  y = 1  # trailing\n"
    assert value(make, "size", source=source) == 4


def test_memory_prefers_what_the_kernel_took_beyond_its_outputs(make):
    assert value(make, "memory", peak_mem_bytes=500) == 500
    assert value(make, "memory", peak_mem_bytes=500, features={"peak_extra_bytes": 0}) == 0
    assert value(make, "memory", peak_mem_bytes=None) == 0


def test_gpu_kernels_have_axes_of_their_own_and_cpu_kernels_lie_at_their_ends(make):
    gpu = {"registers": 70, "shared_bytes": 20_000, "kernels": 3}
    axes = ("registers", "shared", "launches")
    assert coordinates(make.evaluated(0, 1.0, features=gpu), axes, {}) == (2, 2, 1)
    assert coordinates(make.evaluated(0, 1.0, features={**gpu, "launches_per_call": 9.0}), axes, {}) == (2, 2, 2)
    assert coordinates(make.evaluated(0, 1.0, features={}), axes, {}) == (0, 0, 0)


@pytest.mark.parametrize("broken", [None, "8", True, float("nan"), [8]])
def test_a_feature_that_is_no_number_counts_as_not_measured(make, broken):
    assert value(make, "threads", source="x", features={"threads": broken}) == 1


def test_coordinates_are_bins_in_the_order_of_the_axes(make):
    one = make.evaluated(0, 1.0, source="x", features={"threads": 4, "vector_bits": 256}, peak_mem_bytes=0)
    assert coordinates(one, ("vector", "threads", "memory"), {}) == (2, 1, 0)
    assert coordinates(one, ("vector", "threads"), {"threads": (1, 2, 3, 4, 5)}) == (2, 4)
    assert coordinates(one, (), {}) == ()
