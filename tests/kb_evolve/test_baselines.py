"""Baselines are measured once, kept, and written as KernelBench writes them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from fitness.evaluation import Job, JudgeError
from fitness.replay import Replay
from kb_evolve import devices
from kb_evolve.baselines import Shelf, baseline_key, kernelbench_json, kinds_on, measure
from kb_evolve.config import ConfigError, resolve
from problems.problem import Problem

RELU = Problem("level1/19", "19_ReLU", "relu", level=1)
GEMM = Problem("level1/2", "2_Standard_matrix_multiplication_", "gemm", level=1)
FUSED = Problem("level2/40", "40_Matmul_Scaling_ResidualAdd", "fused", level=2)


class Counting:
    """Replay's baselines with the times of their rounds, and how often they were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def baseline(self, job: Job, kind: str) -> dict[str, Any]:
        self.asked.append((job.problem, kind))
        found = Replay().baseline(job, kind)
        return {**found, "problem": job.problem, "samples_ms": [2.0, 4.0, 6.00491]}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "baselines")


def never() -> Counting:
    raise AssertionError("nothing had to be measured, and a workbench was opened")


def test_what_was_measured_is_not_measured_again_unless_it_must_be_fresh(shelf: Shelf) -> None:
    timer, config = Counting(), resolve()
    first = measure([RELU, GEMM], config, ("eager", "compile"), lambda: timer, shelf)
    assert len(timer.asked) == 4
    assert measure([RELU, GEMM], config, ("eager", "compile"), never, shelf) == first
    measure([RELU], config, ("eager",), lambda: timer, shelf, fresh=True)
    assert timer.asked[4:] == [("level1/19", "eager")]


@pytest.mark.parametrize(
    "change",
    [
        lambda problem, config: (dataclasses.replace(problem, source="other"), config, "eager"),
        lambda problem, config: (problem, resolve({"run": {"precision": "tf32"}}), "eager"),
        lambda problem, config: (problem, resolve({"judge": {"sandbox": "none"}}), "eager"),
        lambda problem, config: (problem, config, "compile"),
    ],
)
def test_whatever_changes_the_figures_is_part_of_the_key(change: Callable[..., Any]) -> None:
    assert baseline_key(*change(RELU, resolve())) != baseline_key(RELU, resolve(), "eager")


def test_a_torn_file_is_measured_again(shelf: Shelf, tmp_path: Path) -> None:
    timer = Counting()
    measure([RELU], resolve(), ("eager",), lambda: timer, shelf)
    (kept,) = (tmp_path / "baselines").glob("*.json")
    kept.write_text('{"key": ["')
    measure([RELU], resolve(), ("eager",), lambda: timer, shelf)
    assert len(timer.asked) == 2


def test_kernelbenchs_document_has_its_levels_file_names_and_statistics(shelf: Shelf) -> None:
    problems = [FUSED, RELU, GEMM]
    document = kernelbench_json(problems, measure(problems, resolve(), ("eager",), Counting, shelf))
    assert list(document) == ["level1", "level2"]
    assert list(document["level1"]) == ["2_Standard_matrix_multiplication_.py", "19_ReLU.py"]
    assert document["level2"]["40_Matmul_Scaling_ResidualAdd.py"] == {
        "mean": 4.0,
        "std": 1.63,
        "min": 2.0,
        "max": 6.0,
        "num_trials": 3,
        "hardware": "replay",
        "device": "cpu",
    }
    json.dumps(document, allow_nan=False)


def test_a_baseline_without_its_rounds_cannot_become_kernelbenchs(shelf: Shelf) -> None:
    found = measure([RELU], resolve(), ("eager",), Replay, shelf)
    with pytest.raises(JudgeError, match=r"samples_ms.*--fresh"):
        kernelbench_json([RELU], found)


def test_kinds_that_need_a_gpu_are_refused_without_one_and_measured_on_one() -> None:
    assert kinds_on("cpu", "fp32") == ("eager", "compile")
    assert kinds_on("cuda:0", "fp32") == ("eager", "eager-tf32", "compile", "compile-max-autotune")
    assert kinds_on("cuda:0", "fp32", ["eager-tf32"]) == ("eager-tf32",)
    with pytest.raises(ConfigError, match=r"eager-tf32 needs a GPU.*eager, compile"):
        kinds_on("cpu", "fp32", ["eager-tf32"])
    with pytest.raises(ConfigError, match=r"'magic'.*eager-tf32"):
        kinds_on("cpu", "fp32", ["magic"])


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_tf32_is_no_baseline_where_there_are_no_fp32_tensors(precision: str) -> None:
    assert kinds_on("cuda:0", precision) == ("eager", "compile", "compile-max-autotune")
    with pytest.raises(ConfigError, match=rf"eager-tf32.*{precision}.*--precision fp32"):
        kinds_on("cuda:0", precision, ["eager-tf32"])


def test_on_a_gpu_the_versions_of_triton_and_driver_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpus", lambda: (devices.Gpu(0, "NVIDIA H200", 140 << 30, (9, 0)),))
    config = resolve({"run": {"backend": "triton", "device": "cuda:0"}})
    keys = set()
    for driver, triton in (("580.65", "3.6.0"), ("590.10", "3.6.0"), ("590.10", "3.7.0")):
        versions = {"torch": "2.11.0", "triton": triton}
        monkeypatch.setattr(devices, "driver_version", lambda driver=driver: driver)
        monkeypatch.setattr(metadata, "version", lambda name, versions=versions: versions[name])
        keys.add(baseline_key(RELU, config, "compile"))
    assert len(keys) == 3
