"""The configured judge: its workbench, and the jobs it is given."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fitness.evaluation import PROTOCOL, Evaluation, Job
from kb_evolve.annotate import annotate, find_costs
from kb_evolve.config import Config, ConfigError, flags_layer, resolve
from kb_evolve.targets import check_device, check_target, settle
from problems.problem import Problem, ProblemError

if TYPE_CHECKING:
    from fitness.workbench import Workbench


SANDBOXES = ("auto", "none")


class Bench(Protocol):
    """What the search needs of a workbench: `fitness.workbench.Workbench` and `fitness.replay.Replay`."""

    def build(self, job: Job) -> Any:
        """An artifact; its `failure` is an Evaluation where building failed, else None."""
        ...

    def measure(self, job: Job, artifact: Any) -> Evaluation:
        """The judge's answer; JudgeError when the judge itself fails."""
        ...

    def evaluate(self, job: Job) -> Evaluation:
        """Build and measure."""
        ...

    def close(self) -> None:
        """Ends everything that is at work."""
        ...


def open_workbench(config: Config) -> Workbench:
    """The workbench for the configured device; raises what `check_judge` does."""
    from fitness.workbench import Workbench

    config = settle(config)
    check_judge(config)
    return Workbench(device=config.run.device, sandbox=config.judge.sandbox)


def open_timer(config: Config) -> Workbench:
    """The workbench for baselines: the problem alone runs, so the backend's compilers are not asked for."""
    from fitness.workbench import Workbench

    _check_sandbox(config)
    check_device(config.run)
    return Workbench(device=config.run.device, sandbox=config.judge.sandbox)


def check_judge(config: Config) -> None:
    """ConfigError for settings that make no sense, JudgeError for what this machine lacks; see kb_evolve/targets.py."""
    _check_sandbox(config)
    check_target(settle(config).run)


def _check_sandbox(config: Config) -> None:
    if config.judge.sandbox not in SANDBOXES:
        raise ConfigError(f"unknown sandbox {config.judge.sandbox!r}; possible: {', '.join(SANDBOXES)}")


def make_job(problem: Problem, source: str, config: Config, incumbent_ms: float | None = None) -> Job:
    """The job of judging `source` on `problem` as configured."""
    return Job(
        problem=problem.id,
        problem_source=problem.source,
        source=source,
        backend=config.run.backend,
        device=config.run.device,
        arch=config.run.arch,
        precision=config.run.precision,
        allow_fast_math=config.judge.allow_fast_math,
        incumbent_ms=incumbent_ms,
        timeout_s=config.judge.timeout_s,
        build_timeout_s=config.judge.build_timeout_s,
        memory_bytes=config.judge.memory_bytes,
    )


def evaluation_key(job: Job, problem_sha256: str) -> tuple[str, ...]:
    """Under which an evaluation is stored and found again; results under different rules never meet."""
    others = ("fast-math" if job.allow_fast_math else "", "" if job.backend == "cpp" else job.backend, job.arch)
    rules = "+".join([job.precision, *filter(None, others)])
    return (job.source_sha256, problem_sha256, job.device, rules, PROTOCOL)


def evaluate(
    kernel: str | Path,
    problem: str | Problem,
    *,
    workbench: Bench | None = None,
    profile: bool = False,
    **options: Any,
) -> Evaluation:
    """What the judge says about one kernel.

    `kernel` is a Path, or a string: the source itself when it has line breaks, otherwise a path. `profile` also
    has a correct kernel profiled, which takes some seconds. Options are the configuration's keys (`backend="cpp"`,
    `device="cpu"`, `precision="fp32"`). Raises ProblemError, ConfigError, or JudgeError when this machine cannot judge.
    """
    config = settle(resolve(flags_layer(options)))
    if isinstance(problem, str):
        from problems.catalogue import load

        problem = load(problem, config.run.kernelbench or None)
    job = dataclasses.replace(make_job(problem, read_kernel(kernel), config), profile=profile)
    if workbench is not None:
        return annotate(workbench.evaluate(job), job)
    with open_workbench(config) as own, ThreadPoolExecutor(1) as aside:
        costs = aside.submit(find_costs, problem) if config.run.device != "cpu" else None
        evaluation = own.evaluate(job)
        return annotate(evaluation, job, costs.result() if costs else None)


def read_kernel(kernel: str | Path) -> str:
    """A kernel's source; ProblemError when its file cannot be read."""
    if isinstance(kernel, str) and "\n" in kernel:
        return kernel
    try:
        return Path(kernel).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"the kernel {kernel} cannot be read: {error}; give the path of a Python file") from error
