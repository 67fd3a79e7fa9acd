"""A run's best kernels in the folder layout of KernelBench, with the evidence for them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fitness.evaluation import Verdict
from islands.candidate import Evaluated
from islands.run import Run
from kb_evolve.config import ConfigError
from kb_evolve.export.portable import portable
from kb_evolve.export.shareable import finite, shareable_config
from kb_evolve.export.whole import write_whole
from kb_evolve.report import series

SAMPLE = re.compile(r"level_(\d{1,9})_problem_(\d{1,9})_sample_(\d{1,9})_kernel\.py")
"""Name of a kernel's file: level, problem, sample."""
PROVENANCE, RESULTS = "provenance.json", "eval_results.json"
GENERATOR = "kb_evolve"
SAMPLES = 8
"""Kernels that are exported at most."""


class ExportError(ConfigError):
    """A run that cannot be exported; says why and what to do."""


def export_run(
    run: Run,
    history: Sequence[Evaluated],
    out_dir: str | Path,
    level: int | None = None,
    problem_id: int | None = None,
) -> list[Path]:
    """Writes `runs/<run name>/` below `out_dir`; returns the files' paths, sample 0 first.

    Sample 0 is the elite; further distinct kernels of the Pareto front follow, the fastest first. Next to
    `level_L_problem_P_sample_S_kernel.py` stand `eval_results.json` and `generation_config.yaml` in
    KernelBench's layout, `reference.py`, `check.py` (compares and times both with torch alone) and
    `provenance.json` (our evaluations, hashes, ids and the sources as evolved). Level and problem are
    read from the problem's name where they are not given, see `kernelbench_numbers`.

    An earlier export of this run is replaced. Raises ExportError when the run has no correct candidate, a number is
    negative, or the folder holds something else; WriteError when it cannot be written.
    """
    named = kernelbench_numbers(run.problem_id)
    level = named[0] if level is None else level
    problem_id = named[1] if problem_id is None else problem_id
    if level < 0 or problem_id < 0:
        raise ExportError(f"level and problem must be 0 or more, found {level} and {problem_id}")
    winners = samples(history)
    if not winners:
        raise ExportError(no_elite(run, history))
    folder = Path(out_dir) / "runs" / folder_name(run.name)
    stale = _samples_of_ours(folder, run)
    names = [f"level_{level}_problem_{problem_id}_sample_{n}_kernel.py" for n in range(len(winners))]
    contents = {name: kernel_text(each) for name, each in zip(names, winners, strict=True)}
    contents[RESULTS] = _json(eval_results(run, winners, problem_id), indent=4)
    config = _generation_config(run, folder_name(run.name), level, (problem_id, problem_id), len(winners))
    contents["generation_config.yaml"] = config
    contents[PROVENANCE] = _json(provenance([run], winners, contents), indent=2)
    contents["reference.py"] = run.problem_source
    contents["check.py"] = (Path(__file__).parent / "carried" / "check.py").read_text(encoding="utf-8")
    return write_whole(folder, contents, last=RESULTS, stale=stale)


def export_runs(found: Sequence[tuple[Run, Sequence[Evaluated]]], out_dir: str | Path) -> list[Path]:
    """Writes one `runs/kb_evolve_level<L>/` of several runs, each on another problem of that level; the files' paths.

    It holds what `export_run` writes, but for `reference.py` and `check.py`, which are for one problem. A run without a
    correct candidate has a result that says so, and no kernel. Raises ExportError where KernelBench's files cannot hold
    the runs side by side, none has a correct candidate, or the folder holds what is no such export.
    """
    level = _one_level([run for run, _ in found])
    results: dict[str, Any] = {}
    winners: list[Evaluated] = []
    contents: dict[str, str] = {}
    for run, history in found:
        number, best = kernelbench_numbers(run.problem_id)[1], samples(history)
        results |= eval_results(run, best, number) if best else {str(number): [_failed(run, history)]}
        winners += best
        for sample, each in enumerate(best):
            contents[f"level_{level}_problem_{number}_sample_{sample}_kernel.py"] = kernel_text(each)
    if not winners:
        raise ExportError(f"none of the {len(found)} runs has a correct candidate, so there is nothing to export")
    numbers = [int(number) for number in results]
    most = max(len(entries) for entries in results.values())
    name = f"kb_evolve_level{level}"
    evidence = provenance([run for run, _ in found], winners, contents)
    contents |= {RESULTS: _json(results, indent=4), PROVENANCE: _json(evidence, indent=2)}
    contents["generation_config.yaml"] = _generation_config(
        found[0][0], name, level, (min(numbers), max(numbers)), most
    )
    folder = Path(out_dir) / "runs" / name
    return write_whole(folder, contents, last=RESULTS, stale=_samples_of_ours(folder))


def _one_level(runs: Sequence[Run]) -> int:
    """The level of runs that fit into one folder of KernelBench's; ExportError that says which do not."""
    by_number: dict[tuple[int, int], Run] = {}
    for run in runs:
        numbers = kernelbench_numbers(run.problem_id)
        if numbers == (0, 0):
            raise ExportError(
                f"run {run.name!r} is on {run.problem_id}, which has no number in KernelBench: several runs share a "
                "folder by their problems' numbers; export it alone"
            )
        if numbers in by_number:
            raise ExportError(
                f"runs {by_number[numbers].name!r} and {run.name!r} are both on {run.problem_id}: name one of them"
            )
        by_number[numbers] = run
    for name, values in {
        "level": {str(level) for level, _ in by_number},
        "backend": {run.backend for run in runs},
        "precision": {run.precision for run in runs},
    }.items():
        if len(values) > 1:
            found = ", ".join(sorted(values))
            raise ExportError(f"a folder of KernelBench's has one {name}, these runs have {found}: export them apart")
    return next(iter(by_number))[0]


def no_elite(run: Run, history: Sequence[Evaluated]) -> str:
    """Why there is nothing to export, in a sentence."""
    verified = sum(each.evaluation.verdict is Verdict.VERIFIED for each in history)
    untimed = f" ({verified} verified, but never timed)" if verified else ""
    return (
        f"run {run.name!r} has no correct candidate among {len(history)} evaluated{untimed}, so there is "
        "nothing to export; resume the run or see its report for the reasons"
    )


def kernelbench_numbers(problem: str) -> tuple[int, int]:
    """(level, problem) of `level1/19`, `level1/19_ReLU` or a path that ends so.

    (0, 0), which KernelBench does not have, for any other problem.
    """
    found = re.search(r"(?:^|/)level(\d+)/(\d+)(?:_[^/]*)?$", problem)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def samples(history: Sequence[Evaluated]) -> list[Evaluated]:
    """The elite, then the Pareto front's other sources, the fastest first; at most SAMPLES."""
    elite = series.best(history)
    if elite is None:
        return []
    others = [each for each in series.pareto_front(history) if _sha256(each) != _sha256(elite)]
    return [elite, *others][:SAMPLES]


def kernel_text(each: Evaluated) -> str:
    """The exported file: the source, able to build without ninja where its form allows that."""
    return portable(each.candidate.source) or each.candidate.source


def eval_results(run: Run, winners: Sequence[Evaluated], problem_id: int) -> dict[str, Any]:
    """KernelBench's `eval_results.json`: {"<problem>": [one entry for each sample]}; times in ms."""
    return {str(problem_id): [_entry(run, each, sample_id) for sample_id, each in enumerate(winners)]}


def provenance(runs: Sequence[Run], winners: Sequence[Evaluated], contents: dict[str, str]) -> dict[str, Any]:
    """What KernelBench's layout has no place for: our evaluations, hashes, ids, sources as evolved.

    `run`, or `runs` for several; the kernels' files stand first in `contents`, in the winners' order.
    """
    described = [_described(run) for run in runs]
    head = {"run": described[0]} if len(described) == 1 else {"runs": described}
    kernels = [_kernel(name, contents[name], each) for name, each in zip(contents, winners, strict=False)]
    return {"generator": GENERATOR, **head, "samples": kernels}


def _described(run: Run) -> dict[str, Any]:
    fields = dataclasses.asdict(run)
    del fields["problem_source"]
    return fields | {"config": shareable_config(run)}


def _kernel(name: str, text: str, each: Evaluated) -> dict[str, Any]:
    named = SAMPLE.fullmatch(name)
    assert named is not None
    return {
        "sample_id": int(named[3]),
        "file": name,
        "file_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "builds_without_ninja": text != each.candidate.source,
        "candidate_id": each.candidate.id,
        "parent_ids": list(each.candidate.parent_ids),
        "generation": each.candidate.generation,
        "island": each.candidate.island,
        "mutator": each.candidate.mutator,
        "rationale": each.candidate.rationale,
        "source_sha256": each.candidate.source_sha256,
        "source": each.candidate.source,
        "evaluation": each.evaluation.to_json(),
    }


def folder_name(name: str) -> str:
    """The run's name as one safe folder name: letters, digits, `.`, `_` and `-`, not hidden."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".")[:100] or "run"


def _entry(run: Run, each: Evaluated, sample_id: int) -> dict[str, Any]:
    """One sample. KernelBench reports a mean; ours is the median, and its spread is in the metadata."""
    evaluation = each.evaluation
    runtime_ms = _three_digits(evaluation.kernel_ms)
    hardware = evaluation.device_name or run.device
    return {
        "sample_id": sample_id,
        "compiled": True,
        "correctness": evaluation.kernelbench_correct is not False,
        "metadata": {
            "hardware": hardware,
            "device": run.device,
            "correctness_trials": f"({evaluation.draws} / {evaluation.draws})",
            "kb_evolve": {
                "candidate_id": each.candidate.id,
                "source_sha256": each.candidate.source_sha256,
                "statistic": "runtime and mean hold the median of the timed rounds",
                "kernel_ms_ci": evaluation.kernel_ms_ci,
                "baseline": evaluation.baseline,
                "reference_ms": evaluation.reference_ms,
                "speedup": evaluation.speedup,
                "speedup_ci": evaluation.speedup_ci,
                "verdict": evaluation.verdict.value,
            },
        },
        "runtime": runtime_ms,
        "runtime_stats": {
            "mean": runtime_ms,
            "std": None,
            "min": None,
            "max": None,
            "num_trials": evaluation.rounds,
            "hardware": hardware,
            "device": run.device,
        },
    }


def _failed(run: Run, history: Sequence[Evaluated]) -> dict[str, Any]:
    """The result of a problem without a correct kernel."""
    broken = (Verdict.COMPILE_ERROR, Verdict.LOAD_ERROR)
    return {
        "sample_id": 0,
        "compiled": any(each.evaluation.verdict not in broken for each in history),
        "correctness": False,
        "metadata": {"device": run.device, "kb_evolve": {"verdict": f"none of {len(history)} candidates is correct"}},
        "runtime": -1.0,
        "runtime_stats": {},
    }


def _generation_config(run: Run, name: str, level: int, subset: tuple[int, int], count: int) -> str:
    """The settings that KernelBench's scripts know, as YAML (each value in JSON's notation)."""
    settings = {
        "run_name": name,
        "dataset_src": "local",
        "level": level,
        "subset": list(subset),
        "num_samples": count,
        "backend": run.backend,
        "precision": run.precision,
        "generator": GENERATOR,
    }
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())


def _samples_of_ours(folder: Path, run: Run | None = None) -> list[str]:
    """Names of the kernels of an earlier export of this run (None: of several runs), which this one replaces.

    ExportError when the folder holds anything else: two names may give one folder, and KernelBench keeps its own
    results under such names.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        return []
    record = folder / PROVENANCE
    try:
        found = json.loads(record.read_bytes() if record.is_file() else b"")
        is_of = found["run"]["id"] == run.id if run else "runs" in found
        is_ours = is_of and found["generator"] == GENERATOR
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        is_ours = False
    if not is_ours:
        whose = f"of run {run.name!r}" if run else "of several runs"
        raise ExportError(f"{folder} holds files and is no earlier export {whose}: name another folder with --out")
    return [path.name for path in folder.iterdir() if SAMPLE.fullmatch(path.name)]


def _json(document: Any, indent: int) -> str:
    """JSON in ASCII; a number that JSON cannot write (nan, inf) becomes null."""
    return json.dumps(finite(document), indent=indent, ensure_ascii=True, allow_nan=False) + "\n"


def _sha256(each: Evaluated) -> str:
    return each.candidate.source_sha256


def _three_digits(value: float | None) -> float:
    """KernelBench keeps three significant digits."""
    return float(f"{value:.3g}") if value is not None else -1.0
