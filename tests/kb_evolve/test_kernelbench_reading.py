"""`kb-evolve eval` says what KernelBench's rule makes of a kernel, beside the judge's verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fitness.evaluation import Evaluation, Verdict
from kb_evolve.cli import add_commands, cli
from kb_evolve.commands.evaluate import evaluation_text

PROBLEM = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs(): return [torch.rand(64, 64)]
def get_init_inputs(): return []
"""
RIGHT_ON_ITS_INPUTS = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clone()
"""

add_commands()


def test_a_kernel_that_kernelbench_accepts_and_the_judge_does_not_shows_both(tmp_path: Path) -> None:
    problem, kernel = tmp_path / "relu.py", tmp_path / "kernel.py"
    problem.write_text(PROBLEM)
    kernel.write_text(RIGHT_ON_ITS_INPUTS)
    command = ["eval", str(kernel), "--problem", str(problem)]
    told = CliRunner().invoke(cli, command)
    assert told.exit_code == 1 and told.stdout.startswith("wrong_result"), told.output
    assert "its own rule accepts (within its tolerance on the problem's own inputs)" in told.stdout
    found = json.loads(CliRunner().invoke(cli, [*command, "--json"]).stdout)
    assert (found["verdict"], found["kernelbench_correct"]) == ("wrong_result", True)


@pytest.mark.parametrize(("reading", "words"), [(False, "refuses"), (True, "accepts"), (None, None)])
def test_the_reading_has_one_line_where_there_is_one(reading: bool | None, words: str | None) -> None:
    evaluation = Evaluation(Verdict.WRONG_RESULT, "wrong", "p", "cpp", "0" * 64, kernelbench_correct=reading)
    lines = [line for line in evaluation_text(evaluation, None).splitlines() if line.startswith("KernelBench")]
    assert [line.split("own rule ")[1].split()[0] for line in lines] == ([words] if words else [])
