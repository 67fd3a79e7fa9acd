"""`kb-evolve eval`: what it asks of the judge, and what it prints of a GPU's kernels."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fitness.backends import cuda
from fitness.evaluation import Evaluation, Job, Verdict
from fitness.replay import Replay, ReplayArtifact
from kb_evolve.cli import add_commands, cli
from kb_evolve.commands.evaluate import evaluation_text, kernels_text
from kb_evolve.judging import evaluate
from problems.problem import Problem

add_commands()

RELU_CUDA = '''
import torch
from torch.utils.cpp_extension import load_inline
SOURCE = """
extern "C" __global__ void relu(const float* x, float* y, int n) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = fmaxf(tile[255 - threadIdx.x], 0.0f);
}
"""
load_inline("relu", "", SOURCE, functions=None, no_implicit_headers=True, is_python_module=False)
class ModelNew(torch.nn.Module):
    def forward(self, x): return torch.relu(x)
'''
PROFILED = {
    "registers": 40,
    "spill_bytes": 0,
    "shared_bytes": 16384,
    "occupancy": 0.5,
    "launches_per_call": 2.0,
    "profile_source": "cupti",
    "build_routes": ["full"],
}


class Listening(Replay):
    """A replay that remembers the jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Job] = []

    def build(self, job: Job) -> ReplayArtifact:
        self.jobs.append(job)
        return super().build(job)


def told(features: dict[str, Any], backend: str = "cuda") -> str:
    return evaluation_text(Evaluation(Verdict.NO_VERDICT, "built", "p", backend, "0" * 64, features=features), None)


@pytest.mark.parametrize(("flags", "expected"), [((), True), (("--no-profile",), False)])
def test_eval_asks_for_a_profile_unless_it_is_told_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], expected: bool
) -> None:
    bench = Listening()
    monkeypatch.setattr("kb_evolve.judging.open_workbench", lambda config: bench)
    kernel = tmp_path / "kernel.py"
    kernel.write_text("class ModelNew: pass\n")
    assert CliRunner().invoke(cli, ["eval", str(kernel), "--problem", "softmax", *flags]).exit_code == 0
    assert [job.profile for job in bench.jobs] == [expected]


def test_another_programs_search_does_not_pay_for_profiles(toy_problem: Problem) -> None:
    bench = Listening()
    evaluate("class ModelNew: pass\n", toy_problem, workbench=bench)
    assert not bench.jobs[0].profile


def test_one_line_says_what_the_kernels_use_who_told_it_and_how_they_were_built() -> None:
    line = "registers 40, spilled 0 B, shared 16,384 B, occupancy 50%, launches per call 2 (cupti); built by full"
    assert f"\nkernels      {line}" in told(PROFILED)
    assert "kernels" not in told(PROFILED, "cpp") and "kernels" not in told({})
    why = {"build_fallbacks": ["full: uses torch::nn"], "profile_source": "compiler", "profile_note": "no profile"}
    assert kernels_text({**PROFILED, **why}).endswith("(compiler: no profile); built by full: uses torch::nn")


@pytest.mark.parametrize("value", ["many", None, [1], True, math.nan, -1, 10**400, {"a": 1}])
def test_features_of_a_strangers_database_are_left_out_where_they_are_none(value: object) -> None:
    shown = kernels_text({**dict.fromkeys(PROFILED, value), "build_routes": value, "build_fallbacks": value})
    assert shown is None or ("registers" not in shown and "occupancy" not in shown)


@pytest.mark.skipif(cuda.find_toolkit() is None, reason="no nvcc here")
def test_a_cuda_kernel_that_is_only_built_says_what_the_compiler_reports(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text(RELU_CUDA)
    command = ["eval", str(kernel), "--problem", "softmax", "--backend", "cuda", "--device", "cpu"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 3, result.output
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("kernels ")]
    assert "spilled 0 B, shared 1,024 B (compiler); built by lean" in line
    features = json.loads(CliRunner().invoke(cli, [*command, "--json"]).stdout)["features"]
    assert (features["profile_source"], features["build_routes"], features["shared_bytes"]) == (
        "compiler",
        ["lean"],
        1024,
    )
