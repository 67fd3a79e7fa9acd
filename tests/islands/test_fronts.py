"""Fronts of a database: against brute force, over several runs, as a fold over what was told."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from islands.fronts import Front, Measured, Place, Reference, fold, measured_in, reference_of
from islands.hypervolume import hypervolume
from islands.merge import merge_databases
from islands.store import open_store

PLACE = Place("00", "cpu", "some CPU", "fp32", "1")

FIGURES = st.tuples(
    st.sampled_from([0.25, 0.5, 1.0, 2.0]),
    st.sampled_from([1e6, 2e6, 8e6, math.inf]),
    st.sampled_from([0.0, 0.5, 1.0, 8.0, math.inf]),
    st.sampled_from([1.0, 3.0, math.inf]),
)


def measured(number: int, figures: tuple[float, float, float, float]) -> Measured:
    time_ms = figures[0]
    return Measured(
        candidate_id=f"run00000-{number:06d}",
        run="demo",
        problem="rmsnorm",
        place=PLACE,
        backend="cpp",
        mutator="tune",
        told_at=f"2026-01-01T00:00:{number:02d}",
        objectives=figures,
        reference_ms=1.0,
        speedup=1 / time_ms,
        speedup_ci=(1 / time_ms, 1 / time_ms),
    )


def dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b


@settings(max_examples=60, deadline=None)
@given(st.lists(FIGURES, min_size=1, max_size=14))
def test_front_and_volume_are_those_of_brute_force_at_every_step(figures: list[Any]) -> None:
    told = [measured(number, one) for number, one in enumerate(figures)]
    front = Front(reference_of(told[0]))
    for count, one in enumerate(told, 1):
        front.add(one)
        so_far = set(figures[:count])
        expected = {point for point in so_far if not any(dominates(other, point) for other in so_far)}
        assert {member.objectives for member in front.members} == expected
        assert len(front.members) == len(expected)
        whole = hypervolume([front.reference.gains(point) for point in so_far])
        assert front.volume == pytest.approx(whole)
    volumes = [volume for _, _, volume in front.over_time]
    assert volumes == sorted(volumes)


def test_gains_are_halvings_from_the_reference() -> None:
    reference = Reference(kernel_ms=8.0, peak_mem_bytes=7 * 2.0**20, error_ratio=16.0, energy_mj=4.0)
    assert reference.gains((1.0, 2.0**20, 2.0, 1.0)) == (3.0, 2.0, 3.0, 2.0)


def test_what_is_worse_than_the_reference_gains_nothing() -> None:
    reference = Reference(kernel_ms=8.0, peak_mem_bytes=7 * 2.0**20)
    assert reference.gains((9.0, math.inf, 17.0, math.inf)) == (0.0, 0.0, 0.0)


def test_no_memory_and_no_error_give_finite_gains() -> None:
    gains = Reference(kernel_ms=8.0, peak_mem_bytes=7 * 2.0**20).gains((8.0, 0.0, 0.0, math.inf))
    assert gains == (0.0, 3.0, 8.0)


def told(path: Path, make: ModuleType, run_id: str, name: str, **changes: Any) -> None:
    """A run of four kernels: the fastest needs most memory, one is beaten in all, one is not correct."""
    device_name = changes.pop("device_name", "CPU A")
    with open_store(path) as store:
        run = make.run(run_id, name, **changes)
        store.create_run(run)
        rows = [(1.0, 4 << 20), (4.0, 8 << 20), (0.5, 9 << 20), (None, 1)]
        for number, (speedup, memory) in enumerate(rows):
            made = make.candidate(number, run_id, source=f"x = {run_id!r}, {number}\n")
            own = {"peak_mem_bytes": memory, "device_name": device_name}
            make.record(store, run, make.Evaluated(made, make.evaluation(made, speedup, **own)))


def test_a_front_spans_all_runs_of_the_database(path: Path, make: ModuleType) -> None:
    told(path, make, "aaaaaaaa", "first")
    told(path, make, "bbbbbbbb", "second")
    fronts = fold(measured_in(path))
    (front,) = fronts.values()
    assert front.told == 6
    assert [member.candidate_id for member in front.fastest_first()] == ["aaaaaaaa-000001", "aaaaaaaa-000000"]


def test_machines_precisions_and_problems_have_fronts_of_their_own(path: Path, make: ModuleType) -> None:
    told(path, make, "aaaaaaaa", "first")
    told(path, make, "bbbbbbbb", "second", device_name="CPU B")
    told(path, make, "cccccccc", "third", precision="bf16")
    fronts = fold(measured_in(path))
    assert {(place.device_name, place.precision) for place in fronts} == {
        ("CPU A", "fp32"),
        ("CPU B", "fp32"),
        ("CPU A", "bf16"),
    }


def test_only_one_problem_may_be_asked_for(path: Path, make: ModuleType) -> None:
    told(path, make, "aaaaaaaa", "first")
    assert list(measured_in(path, "softmax")) == []
    assert len(list(measured_in(path, "rmsnorm"))) == 3


def test_fronts_do_not_depend_on_which_file_was_imported_into_which(tmp_path: Path, make: ModuleType) -> None:
    ours, theirs, both = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "both.db"
    told(ours, make, "aaaaaaaa", "first")
    told(theirs, make, "bbbbbbbb", "second")
    for other in (theirs, ours):
        merge_databases(both, other)
    merge_databases(ours, theirs)
    assert fold(measured_in(ours)) == fold(measured_in(both))
