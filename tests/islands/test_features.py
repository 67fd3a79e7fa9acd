"""Coordinates: what was measured comes first, the source text stands in for it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from islands.elite import beats
from islands.features import AXES, DEFAULT_AXES, UNKNOWN, check_axes, coordinates
from islands.population import Population, PopulationConfig
from islands.store import open_store


def value(make: Any, axis: str, **changes: Any) -> float:
    return AXES[axis].read(make.evaluated(0, 1.0, **changes))


def kernel(make: Any, backend: str, **changes: Any) -> Any:
    """A correct candidate of that backend; `changes` go to its evaluation."""
    new = make.candidate(0, backend=backend, **({"source": changes.pop("source")} if "source" in changes else {}))
    return make.Evaluated(new, make.evaluation(new, 1.0, **changes))


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
    assert value(make, "memory", peak_mem_bytes=None) is None


GPU_AXES = ("registers", "shared", "launches")


@pytest.mark.parametrize("backend", ["cuda", "triton"])
def test_gpu_kernels_are_binned_by_what_their_compiler_and_their_profile_say(make, backend):
    gpu = {"registers": 70, "shared_bytes": 20_000, "kernels": 3}
    one = kernel(make, backend, features=gpu)
    profiled = kernel(make, backend, features={**gpu, "launches_per_call": 9.0})
    assert coordinates(one, GPU_AXES, {}) == (2, 2, 1)
    assert coordinates(profiled, GPU_AXES, {}) == (2, 2, 2)


def test_an_axis_that_does_not_speak_of_a_backend_or_knows_nothing_gives_minus_one(make):
    features = {"registers": 70, "vector_bits": 256}
    assert coordinates(make.evaluated(0, 1.0, features=features), ("registers", "vector"), {}) == (UNKNOWN, 2)
    cuda = kernel(make, "cuda", features=features)
    assert coordinates(cuda, ("registers", "vector", "shared"), {}) == (2, UNKNOWN, UNKNOWN)


def test_candidates_of_three_backends_lie_in_maps_of_their_own(make):
    every = {"threads": 8, "vector_bits": 512, "registers": 40, "shared_bytes": 0, "peak_extra_bytes": 3 << 20}
    cells = [
        coordinates(kernel(make, backend, features=every), DEFAULT_AXES, {})
        for backend in ("cpp", "cuda", "triton", "a new one")
    ]
    assert [cell[0] for cell in cells] == [0, 1, 2, UNKNOWN]
    assert len(set(cells)) == 4
    speaking = [{axis for axis, at in zip(DEFAULT_AXES, cell, strict=True) if at != UNKNOWN} for cell in cells]
    assert speaking[0] == {"backend", "vector", "threads", "memory"}
    assert speaking[1] == speaking[2] == {"backend", "registers", "shared", "memory"}
    assert speaking[3] == set(), "nothing is known of a backend that no axis names"


def test_rooflines_are_shares_of_the_devices_limits(make):
    rates = {"achieved_bytes_per_s": 1.675e12, "achieved_flop_per_s": 6.7e12, "roofline_fraction": 0.5}
    h100 = {"device_name": "NVIDIA H100 80GB HBM3"}
    assert value(make, "memory_roofline", features=rates, **h100) == pytest.approx(0.5)
    assert value(make, "compute_roofline", features=rates, **h100) == pytest.approx(0.1)
    over = {**rates, "achieved_flop_per_s": 200e12, "roofline_fraction": 0.7}
    assert value(make, "compute_roofline", features=over, **h100) == 0.7, "of the precision's own, higher rate"
    counted = {**rates, "dram_percent": 80.0, "sm_percent": 20.0}
    assert value(make, "memory_roofline", features=counted, **h100) == 0.8
    assert value(make, "compute_roofline", features=counted, **h100) == 0.2


def test_a_device_that_nobody_knows_has_no_roofline(make):
    rates = {"achieved_bytes_per_s": 1e12, "achieved_flop_per_s": 1e12}
    for axis in ("memory_roofline", "compute_roofline"):
        assert value(make, axis, features=rates, device_name="replay") is None


@pytest.mark.parametrize("broken", [None, "8", True, float("nan"), [8]])
def test_a_feature_that_is_no_number_counts_as_not_measured(make, broken):
    assert value(make, "threads", source="x", features={"threads": broken}) == 1


def test_coordinates_are_bins_in_the_order_of_the_axes(make):
    one = make.evaluated(0, 1.0, source="x", features={"threads": 4, "vector_bits": 256}, peak_mem_bytes=0)
    assert coordinates(one, ("vector", "threads", "memory"), {}) == (2, 2, 0)
    assert coordinates(one, ("vector", "threads"), {"threads": (1, 2, 3, 4, 5)}) == (2, 4)
    assert coordinates(one, (), {}) == ()


def test_edges_of_one_backend_leave_the_others_as_they_are(make):
    kernels = [kernel(make, backend, peak_mem_bytes=1000) for backend in ("cuda", "triton")]
    edges = {"memory@cuda": (10.0, 100.0), "memory": (10.0,)}
    assert [coordinates(one, ("memory",), edges) for one in kernels] == [(2,), (1,)]


def test_backends_have_bins_of_their_own_where_one_size_does_not_fit_all(make):
    source = "x = 1\n" * 40
    kernels = [kernel(make, backend, source=source) for backend in ("cpp", "triton")]
    assert [coordinates(one, ("size",), {}) for one in kernels] == [(0,), (1,)]


def test_the_default_axes_exist_and_their_edges_ascend():
    check_axes(DEFAULT_AXES, {})
    for axis in AXES.values():
        for edges in (axis.edges, *axis.own_edges.values()):
            assert list(edges) == sorted(set(edges))


def recorded(path: Path, make: Any) -> list[Any]:
    """A run of 60 measured candidates in a database file, and what was recorded."""
    rng, found = Random(5), []
    with open_store(path) as store:
        store.create_run(make.run())
        for number in range(60):
            features = {"threads": rng.choice([1, 2, 8]), "vector_bits": rng.choice([128, 512])}
            speedup = None if rng.random() < 0.2 else rng.uniform(1, 4)
            new = make.evaluated(number, speedup, features=features, peak_mem_bytes=rng.randrange(64 << 20))
            make.record(store, make.run(), new)
            found.append(new)
    return found


def elites(told: list[Any], island: int, axes: tuple[str, ...], edges: dict[str, Any]) -> dict[Any, str]:
    """The elite of each cell of an island, found without a population."""
    best: dict[Any, Any] = {}
    for one in told:
        if one.candidate.island == island and one.evaluation.is_correct:
            cell = coordinates(one, axes, edges)
            if cell not in best or beats(one.evaluation, best[cell].evaluation):
                best[cell] = one
    return {cell: one.candidate.id for cell, one in best.items()}


@pytest.mark.parametrize(
    ("axes", "edges"),
    [
        (("threads",), {}),
        (("threads", "vector"), {}),
        (("threads", "vector", "memory"), {}),
        (("threads", "vector", "memory"), {"memory": (1 << 20, 32 << 20)}),
        ((), {}),
    ],
)
def test_adding_or_changing_an_axis_bins_a_recorded_history_anew(path, make, axes, edges):
    told = recorded(path, make)
    population = Population(PopulationConfig(axes=axes, edges=edges, migration_every=0), "run00000", 7)
    with open_store(path, read_only=True) as store:
        for one in store.history("run00000"):
            population.tell(one)
    for island in population.islands():
        found = {cell: elite.candidate.id for cell, elite in island.cells.items()}
        assert found == elites(told, island.number, axes, edges)
        assert all(len(cell) == len(axes) for cell in found)
