"""From what `--seeds` names to seeds: found, checked by reading, told apart and cut to a number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from islands.browsing import Wish
from islands.candidate import Evaluated
from islands.queries import correct_sources
from islands.run import Run
from islands.store import Store
from kb_evolve import standing
from kb_evolve.config import Config, ConfigError
from kb_evolve.report.text import one_line
from kb_evolve.seeding.bundles import bundle_seeds, bundles_in
from kb_evolve.seeding.files import read_seeds
from kb_evolve.seeding.seed import Gathered, Seed, fault, words
from kb_evolve.seeding.similar import operators, similarity
from problems.problem import Problem

SIMILAR = "similar"
"""The word for kernels of other problems in the database."""
LEAST_SIMILARITY = 0.5
"""Half of all operators in common: what a problem must share to lend its kernels."""
NEIGHBOURS = 3
"""Problems that lend kernels at most."""
PAGE = 50
"""Kernels of a run that are read at once."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one spec names."""

    seeds: Iterable[Seed]
    left_out: Sequence[str] = ()
    count: int = 0
    """How many seeds there are, where they come from a run; else 0: they are all read."""


def gather(specs: Sequence[str], store: Store, problem: Problem, config: Config, *, known: str | None) -> Gathered:
    """The seeds that `specs` name, distinct from each other and from the source `known`, at most
    `config.run.seeds_each` of each spec and half of the evaluations that the run may make.

    ConfigError for a spec that names nothing. What is bad about single seeds is told in `left_out`.
    """
    seen = {Seed(known, {}).sha256} if known is not None else set()
    seeds: list[Seed] = []
    left_out: list[str] = []
    for spec in specs:
        found = _find(spec, store, problem, config)
        left_out += found.left_out
        taken, more = _sift(found, seen, left_out, config.run.seeds_each)
        if more:
            left_out.append(f"{spec}: {more} more, seeds_each = {config.run.seeds_each}")
        seeds += taken
    most = max(1, (config.budget.evaluations or 2 * len(seeds)) // 2)
    if len(seeds) > most:
        left_out.append(f"{len(seeds) - most} more: seeds may take half of {config.budget.evaluations} evaluations")
    return Gathered(tuple(seeds[:most]), tuple(one_line(reason, 600) for reason in left_out))


def _sift(found: Found, seen: set[str], left_out: list[str], most: int) -> tuple[list[Seed], int]:
    """At most `most` that may be judged, each source once, and how many there are beside them.

    Adds to `seen` and `left_out`. Of a run nothing is read once there are enough.
    """
    taken: list[Seed] = []
    more = 0
    for read, seed in enumerate(found.seeds, 1):
        if reason := fault(seed.source):
            left_out.append(f"{words(seed.origin).removeprefix('from ')}: {reason}")
        elif seed.sha256 not in seen:
            seen.add(seed.sha256)
            more += len(taken) == most
            taken += [seed] if len(taken) < most else []
        if found.count and len(taken) == most:
            return taken, found.count - read
    return taken, more


def _find(spec: str, store: Store, problem: Problem, config: Config) -> Found:
    if spec == SIMILAR:
        return _of_similar(store, problem, config)
    path, name = Path(spec).expanduser(), spec.removeprefix("run:")
    if name == spec and path.exists():
        folders = bundles_in(path)
        read = bundle_seeds(folders, problem, config.run.backend) if folders else read_seeds(path, problem)
        return Found(read.seeds, read.left_out)
    run = store.find_run(name)
    if run is None:
        names = ", ".join(entry.name for entry in store.runs()) or "none"
        raise ConfigError(
            f"--seeds {spec}: there is no such file or folder, and {store.path} holds no such run; its runs: {names}. "
            f"`--seeds {SIMILAR}` takes kernels of other problems of the same kind."
        )
    if run.backend != config.run.backend:
        reason = f"its kernels are for backend {run.backend}, these must be for {config.run.backend}"
        return Found((), (f"run {run.name}: {reason}",))
    count = correct_sources(store, run.id)
    if not count:
        return Found((), (f"run {run.name}: it has no correct kernel",))
    return Found((Seed(one.candidate.source, _origin("run", run, one)) for one in elites_of(store, run.id)), (), count)


def elites_of(store: Store, run_id: str) -> Iterator[Evaluated]:
    """A run's correct candidates, each program once: its Pareto front with its elite first, then by their speedup.

    They are read as they are asked for: a run may hold a hundred thousand.
    """
    finalists = standing.finalists(store, run_id)
    seen: set[str] = set()
    for one in sorted(finalists, key=lambda one: (not standing.is_elite(one), one.evaluation.kernel_ms or math.inf)):
        if one.candidate.source_sha256 not in seen:
            seen.add(one.candidate.source_sha256)
            yield one
    for skip in itertools.count(0, PAGE):
        page = store.browse(run_id, Wish(fastest=True), skip, PAGE)
        if not page:
            return
        told = {one.candidate.id: one for one in store.told_of([one.candidate.id for one in page])}
        for summary in page:
            if summary.candidate.source_sha256 not in seen:
                seen.add(summary.candidate.source_sha256)
                yield told[summary.candidate.id]


def _of_similar(store: Store, problem: Problem, config: Config) -> Found:
    """The elites of the runs on the nearest other problems, the nearest problem's first."""
    wanted = operators(problem.source)
    near = [
        (similarity(wanted, operators(run.problem_source)), run)
        for run in store.runs()
        if run.problem_sha256 != problem.sha256 and run.backend == config.run.backend
    ]
    near = [entry for entry in near if entry[0] >= LEAST_SIMILARITY]
    nearest = sorted({(-share, run.problem_sha256) for share, run in near})[:NEIGHBOURS]
    seeds = []
    for share, sha256 in nearest:
        for run in (run for _, run in near if run.problem_sha256 == sha256):
            one = standing.best_of(store, run.id)
            if one is not None:
                seeds.append(Seed(one.candidate.source, _origin("similar", run, one) | {"similarity": -share}))
    none = f"{SIMILAR}: no run of another problem in {store.path} shares half of the operators of {problem.id}"
    return Found(seeds, () if seeds else (none,))


def _origin(kind: str, run: Run, one: Evaluated) -> dict[str, object]:
    return {
        "kind": kind,
        "run": run.name,
        "run_id": run.id,
        "candidate": one.candidate.id,
        "problem": run.problem_id,
        "device_name": one.evaluation.device_name,
        "speedup": one.evaluation.speedup,
    }
