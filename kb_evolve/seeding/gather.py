"""From what `--seeds` names to seeds: found, checked by reading, told apart and cut to a number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from islands.archive import pareto
from islands.candidate import Evaluated
from islands.elite import beats, fitness
from islands.run import Run
from islands.store import Store
from kb_evolve.config import Config, ConfigError
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
        taken = _sift(found.seeds, seen, left_out)
        if len(taken) > config.run.seeds_each:
            left_out.append(f"{spec}: {len(taken) - config.run.seeds_each} more, seeds_each = {config.run.seeds_each}")
        seeds += taken[: config.run.seeds_each]
    most = max(1, (config.budget.evaluations or 2 * len(seeds)) // 2)
    if len(seeds) > most:
        left_out.append(f"{len(seeds) - most} more: seeds may take half of {config.budget.evaluations} evaluations")
    return Gathered(tuple(seeds[:most]), tuple(left_out))


def _sift(seeds: Sequence[Seed], seen: set[str], left_out: list[str]) -> list[Seed]:
    """Those that may be judged, each source once; adds to `seen` and `left_out`."""
    taken = []
    for seed in seeds:
        if reason := fault(seed.source):
            left_out.append(f"{words(seed.origin).removeprefix('from ')}: {reason}")
        elif seed.sha256 not in seen:
            seen.add(seed.sha256)
            taken.append(seed)
    return taken


def _find(spec: str, store: Store, problem: Problem, config: Config) -> Gathered:
    if spec == SIMILAR:
        return _of_similar(store, problem, config)
    path, name = Path(spec).expanduser(), spec.removeprefix("run:")
    if name == spec and path.exists():
        folders = bundles_in(path)
        return bundle_seeds(folders, problem, config.run.backend) if folders else read_seeds(path, problem)
    run = store.find_run(name)
    if run is None:
        names = ", ".join(entry.name for entry in store.runs()) or "none"
        raise ConfigError(
            f"--seeds {spec}: there is no such file or folder, and {store.path} holds no such run; its runs: {names}. "
            f"`--seeds {SIMILAR}` takes kernels of other problems of the same kind."
        )
    if run.backend != config.run.backend:
        reason = f"its kernels are for backend {run.backend}, these must be for {config.run.backend}"
        return Gathered((), (f"run {run.name}: {reason}",))
    elites = elites_of(store.history(run.id))
    if not elites:
        return Gathered((), (f"run {run.name}: it has no correct kernel",))
    return Gathered(tuple(Seed(one.candidate.source, _origin("run", run, one)) for one in elites))


def elites_of(history: Sequence[Evaluated]) -> list[Evaluated]:
    """A run's correct candidates: its elite, the rest of its Pareto front, then all others by their speedup."""
    best: Evaluated | None = None
    for one in history:
        if beats(one.evaluation, best.evaluation if best else None):
            best = one
    others = sorted((one for one in history if one.evaluation.is_correct), key=lambda one: -fitness(one.evaluation))
    ordered = [*([best] if best else []), *pareto(history), *others]
    distinct: dict[str, Evaluated] = {}
    for one in ordered:
        distinct.setdefault(one.candidate.source_sha256, one)
    return list(distinct.values())


def _of_similar(store: Store, problem: Problem, config: Config) -> Gathered:
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
            best = elites_of(store.history(run.id))[:1]
            seeds += [Seed(one.candidate.source, _origin("similar", run, one) | {"similarity": -share}) for one in best]
    none = f"{SIMILAR}: no run of another problem in {store.path} shares half of the operators of {problem.id}"
    return Gathered(tuple(seeds), () if seeds else (none,))


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
