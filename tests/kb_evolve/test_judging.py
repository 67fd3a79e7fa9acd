"""Jobs, keys and the one-kernel entry point."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.evaluation import JudgeError
from fitness.replay import Failure, Landscape, Replay
from kb_evolve.config import ConfigError, resolve
from kb_evolve.judging import check_judge, evaluate, evaluation_key, make_job
from problems.problem import Problem, ProblemError


def test_a_kernel_is_given_as_a_source_or_as_a_path(tmp_path: Path, toy_problem: Problem) -> None:
    assert toy_problem.seed is not None
    path = tmp_path / "kernel.py"
    path.write_text(toy_problem.seed)
    answers = [evaluate(kernel, toy_problem, workbench=Replay()) for kernel in (toy_problem.seed, path, str(path))]
    assert answers[0].is_correct and answers[0] == answers[1] == answers[2]


def test_a_kernel_that_cannot_be_read_is_a_problem_error(tmp_path: Path, toy_problem: Problem) -> None:
    with pytest.raises(ProblemError, match=r"none\.py"):
        evaluate(tmp_path / "none.py", toy_problem, workbench=Replay())
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProblemError, match=r"binary\.py"):
        evaluate(binary, toy_problem, workbench=Replay())


def test_options_are_the_configurations_keys(toy_problem: Problem) -> None:
    with pytest.raises(ConfigError, match="'backend'"):
        evaluate("x\n", toy_problem, workbench=Replay(), backed="cpp")


def test_a_judge_that_fails_is_not_hidden(toy_problem: Problem) -> None:
    with pytest.raises(JudgeError):
        evaluate("x\n", toy_problem, workbench=Replay(Landscape(failures=(Failure("x", None),))))


def test_the_configured_limits_reach_the_job(toy_problem: Problem) -> None:
    judge = {"timeout_s": 7.0, "build_timeout_s": 8.0, "memory_bytes": 9, "allow_fast_math": True}
    job = make_job(toy_problem, "x", resolve({"judge": judge, "run": {"precision": "bf16"}}), incumbent_ms=2.0)
    assert (job.timeout_s, job.build_timeout_s, job.memory_bytes, job.allow_fast_math) == (7.0, 8.0, 9, True)
    assert (job.precision, job.incumbent_ms, job.problem_source) == ("bf16", 2.0, toy_problem.source)


def test_results_under_other_rules_have_other_keys(toy_problem: Problem) -> None:
    rules: list[dict[str, dict[str, object]]] = [
        {},
        {"judge": {"allow_fast_math": True}},
        {"run": {"precision": "tf32"}},
        {"run": {"device": "cuda:1"}},
    ]
    keys = {evaluation_key(make_job(toy_problem, "x", resolve(layer)), toy_problem.sha256) for layer in rules}
    assert len(keys) == len(rules)


@pytest.mark.parametrize(
    ("layer", "found"),
    [
        ({"run": {"backend": "cobol"}}, "cobol"),
        ({"run": {"device": "tpu"}}, "tpu"),
        ({"judge": {"sandbox": "maybe"}}, "maybe"),
    ],
)
def test_what_the_judge_does_not_know_is_a_config_error(layer: dict[str, dict[str, str]], found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        check_judge(resolve(layer))
