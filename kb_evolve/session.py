"""From what was asked for to a run in the database: a new one, or the stored one to go on with."""

from __future__ import annotations

import dataclasses
import logging
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from islands.run import Run, new_run_id, utc_now
from islands.store import Store
from kb_evolve.annotate import costs_of
from kb_evolve.config import SECTIONS, UNSTORED, Config, ConfigError, Layer, check_resumable, merge, resolve
from kb_evolve.judging import read_kernel
from kb_evolve.targets import settle
from problems.problem import Problem, ProblemError
from problems.roofline import Costs, Peaks

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Audited:
    """What is recorded of a problem when its run begins."""

    findings: tuple[dict[str, Any], ...] = ()
    """Tricks that pass KernelBench's rule on it without computing anything."""
    costs: Costs | None = None
    shapes: str = ""
    """The inputs in one line."""
    cpu: Peaks | None = None
    """What this machine's CPU can do, as measured."""


Audit = Callable[[Problem], Audited]


def open_run(store: Store, problem: Problem, given: Layer, audit: Audit) -> tuple[Run, Config]:
    """The run of that name with its configuration; created when the database has none.

    `audit` gives what is recorded of the problem with a new run; it may refuse the problem.
    A stored run goes on with its own configuration, changed only where `given` says so. ConfigError when
    that would make it another run; StoreError when the database refuses.
    """
    config = settle(resolve(given))
    name = run_name(problem, config)
    stored = store.find_run(name)
    if stored is None:
        run = _new_run(name, problem, config, audit(problem))
        store.create_run(run)
        return run, config
    if stored.problem_sha256 != problem.sha256:
        raise ConfigError(
            f"run {name!r} in {store.path} searches problem {stored.problem_id} with sha256 "
            f"{stored.problem_sha256[:12]}, but {problem.id} now has {problem.sha256[:12]}: "
            f"restore the problem's file, or start another run with --run NAME"
        )
    before = last_config(store, stored)
    check_resumable(before, given, name=name)
    return stored, resolve(before, given)


def admission(problem: Problem) -> Audited:
    """The tricks that pass KernelBench's rule on this problem without computing anything, and what it costs.

    Runs the problem's code in a child process. ProblemError when it cannot be run.
    """
    from problems.describe import describe

    anatomy = describe(problem)
    findings = tuple(dataclasses.asdict(finding) for finding in anatomy.findings if finding.passes)
    shapes = ", ".join(f"{form.name} {form.shape} {form.dtype}" for form in anatomy.inputs)
    return Audited(findings, costs_of(anatomy), shapes, anatomy.cpu)


def stored_costs(run: Run) -> Costs | None:
    """The costs that were recorded with the run; None for a run that has none."""
    costs = run.config.get("costs")
    return Costs(**costs) if costs else None


def last_config(store: Store, run: Run) -> Layer:
    """The configuration that the run's last part went by."""
    started = [event for event in store.events(run.id) if event.kind == "started"]
    created = {section: run.config[section] for section in SECTIONS if section not in UNSTORED}
    return merge(created, started[-1].fields["config"] if started else {})


def run_name(problem: Problem, config: Config) -> str:
    """The name that was given, else one that says what is searched, so that the same command resumes."""
    if config.run.name:
        return config.run.name
    return "-".join([problem.name, config.run.backend, config.run.device.replace(":", ""), config.run.precision])


def first_kernel(problem: Problem, config: Config, *, models: bool = False) -> str | None:
    """Source of the first candidate: `start`, else the bundled seed, else None where models write one or `seeds` give
    some.

    ProblemError when there is none.
    """
    if config.run.start:
        return read_kernel(Path(config.run.start))
    if problem.seed is not None and config.run.backend == "cpp":
        return problem.seed
    if models or config.run.seeds:
        return None
    raise ProblemError(
        f"{problem.id} has no bundled first kernel for backend {config.run.backend}: write a correct one, "
        f"however slow, with a class ModelNew, and give its path with --start KERNEL.py, or name other kernels "
        f"(--seeds) or a model (--model)"
    )


def _new_run(name: str, problem: Problem, config: Config, audited: Audited) -> Run:
    layer: dict[str, Any] = config.to_layer()
    return Run(
        id=new_run_id(),
        name=name,
        problem_id=problem.id,
        problem_sha256=problem.sha256,
        problem_source=problem.source,
        backend=config.run.backend,
        device=config.run.device,
        precision=config.run.precision,
        config={
            **layer,
            "findings": list(audited.findings),
            "costs": dataclasses.asdict(audited.costs) if audited.costs else None,
            "shapes": audited.shapes,
            "cpu": dataclasses.asdict(audited.cpu) if audited.cpu else None,
            "prompt_secret": secrets.token_hex(16),
        },
        seed=config.run.seed,
        budget=layer["budget"],
        git_commit=git_commit(),
        started_at=utc_now(),
    )


def git_commit() -> str:
    """The commit of the checkout that this program runs from; empty without a checkout or without git."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.info("no git commit recorded: %s", error)
        return ""
    return answer.stdout.strip()
