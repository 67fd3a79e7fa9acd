"""Seeds from files that others wrote: read as text, never run, never trusted to be small or well formed."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kb_evolve.export.kernelbench import PROVENANCE, RESULTS, SAMPLE, kernelbench_numbers
from kb_evolve.seeding.bundles import evolved_source
from kb_evolve.seeding.seed import SOURCE_LIMIT, Gathered, Seed
from problems.problem import Problem

JSON_LIMIT = 4 << 20
"""Largest JSON file that is read [B]: OpenEvolve keeps prompts beside programs."""
KERNELBENCH_LIMIT = 64 << 20
"""Largest file of results or provenance beside KernelBench's samples [B]: a level's 800 kernels of ours take 12 MiB."""
FILES_LIMIT = 10_000
"""Files of one folder that are looked at."""
TOTAL_LIMIT = 512 << 20
"""Bytes of one folder that are read."""

CHECKPOINT = re.compile(r"checkpoint_(\d{1,9})")


class Unreadable(ValueError):
    """A file that cannot be taken; says why."""


def read_seeds(path: Path, problem: Problem) -> Gathered:
    """The seeds of a kernel's file, a folder of them, KernelBench's `runs/` or a folder in it, or an OpenEvolve
    checkpoint, or the folder that holds its checkpoints; the most promising first, as their own records have it.
    """
    if path.is_file():
        return _gather([(path, {"kind": "file", "path": str(path)})])
    if (checkpoint := _checkpoint(path)) is not None:
        return _openevolve(checkpoint)
    unseen: list[str] = []
    samples = [entry for entry in _files(path, unseen, depth=2) if SAMPLE.fullmatch(entry.name)]
    if samples:
        found = _kernelbench(samples, problem)
        return Gathered(found.seeds, (*found.left_out, *unseen))
    unseen = []
    kernels = [entry for entry in _files(path, unseen) if entry.suffix == ".py" and entry.name != "__init__.py"]
    if not kernels:
        none = f"{path}: there is no .py file in it, and it is no other tool's folder that is known"
        return Gathered((), (none, *unseen))
    found = _gather([(entry, {"kind": "file", "path": str(entry)}) for entry in kernels])
    return Gathered(found.seeds, (*found.left_out, *unseen))


def read_text(path: Path, limit: int) -> str:
    """A regular file's text; Unreadable for what is none, is too large, or is not UTF-8."""
    try:
        if not path.is_file():
            raise Unreadable("it is not a regular file")
        with path.open("rb") as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise Unreadable(f"it has more than {limit} bytes")
        return content.decode("utf-8")
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Unreadable("it is not UTF-8 text") from error


def read_json(path: Path, limit: int = JSON_LIMIT) -> Any:
    """What a JSON file holds; Unreadable for one that is too large or malformed."""
    try:
        return json.loads(read_text(path, limit))
    except RecursionError as error:
        raise Unreadable("it is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise Unreadable(f"it is not JSON: {error}") from error
    except Unreadable:
        raise
    except ValueError as error:
        raise Unreadable(f"it is not JSON that can be read: {error}") from error


def _gather(found: list[tuple[Path, dict[str, Any]]]) -> Gathered:
    seeds, left_out, total = [], [], 0
    for path, origin in found:
        try:
            source = read_text(path, SOURCE_LIMIT)
        except Unreadable as error:
            left_out.append(f"{path}: {error}")
            continue
        total += len(source)
        if total > TOTAL_LIMIT:
            left_out.append(f"{path} and those after it: more than {TOTAL_LIMIT} bytes were read before them")
            break
        seeds.append(Seed(source, origin))
    return Gathered(tuple(seeds), tuple(left_out))


def _files(folder: Path, unseen: list[str], depth: int = 0) -> Iterator[Path]:
    """Files of a folder and of its own folders down to `depth`, by name; links to folders are not followed.

    What lies behind FILES_LIMIT is told in `unseen`.
    """
    waiting, seen = [(folder, depth)], 0
    while waiting:
        current, left = waiting.pop(0)
        for entry in sorted(current.iterdir()):
            seen += 1
            if seen > FILES_LIMIT:
                unseen.append(
                    f"{folder}: it has more than {FILES_LIMIT:,} files, those from {entry} on were not looked at"
                )
                return
            if entry.is_dir():
                if left > 0 and not entry.is_symlink():
                    waiting.append((entry, left - 1))
            else:
                yield entry


def _kernelbench(samples: list[Path], problem: Problem) -> Gathered:
    """KernelBench's samples of this problem. Those it found correct come first, the fastest before all, then those that
    it did not judge; its word decides nothing but the order."""
    numbers = kernelbench_numbers(problem.id)
    ours = [path for path in samples if _is_of(path, numbers, problem)]
    others = len(samples) - len(ours)
    note = (f"{others} samples are of other problems than {problem.id}",) if others else ()
    results = {folder: _beside(folder / RESULTS) for folder in {path.parent for path in ours}}
    ranked = sorted((_kernelbench_rank(path, results[path.parent]), str(path), path) for path in ours)
    found = _gather([(path, {"kind": "kernelbench", "path": str(path)}) for _, _, path in ranked])
    return Gathered(_as_evolved(found.seeds), (*note, *found.left_out))


def _as_evolved(seeds: Sequence[Seed]) -> tuple[Seed, ...]:
    """Samples that we exported, as the sources that they were made of; other tools' samples as they are."""
    known: dict[Path, Any] = {}
    evolved = []
    for seed in seeds:
        path = Path(seed.origin["path"])
        if path.parent not in known:
            known[path.parent] = _beside(path.with_name(PROVENANCE))
        source, origin = evolved_source(known[path.parent], path.name, seed.source)
        evolved.append(Seed(source, seed.origin | origin))
    return tuple(evolved)


def _beside(path: Path) -> Any:
    """What a JSON file beside samples holds; None where it cannot be read, which costs order and origin only."""
    try:
        return read_json(path, KERNELBENCH_LIMIT)
    except Unreadable:
        return None


def _is_of(path: Path, numbers: tuple[int, int], problem: Problem) -> bool:
    """By level and number; a problem that has none must be the one whose text lies beside the sample."""
    named = SAMPLE.fullmatch(path.name)
    if named is None or (int(named[1]), int(named[2])) != numbers:
        return False
    if numbers != (0, 0):
        return True
    try:
        text = read_text(path.with_name("reference.py"), SOURCE_LIMIT)
    except Unreadable:
        return False
    return hashlib.sha256(text.encode()).hexdigest() == problem.sha256


def _kernelbench_rank(path: Path, results: Any) -> tuple[int, float]:
    named = SAMPLE.fullmatch(path.name)
    try:
        entries = results[str(int(named[2]))] if named else []
        entry = next(one for one in entries if one["sample_id"] == int(named[3])) if named else {}
        return (0, _number(entry.get("runtime"))) if entry["correctness"] is True else (2, 0.0)
    except (KeyError, TypeError, AttributeError, StopIteration):
        return 1, 0.0


def _checkpoint(path: Path) -> Path | None:
    """The folder with OpenEvolve's `programs`: this one, or its latest checkpoint's."""
    if (path / "programs").is_dir():
        return path
    found = [
        (int(named[1]), entry)
        for folder in (path, path / "checkpoints")
        if folder.is_dir()
        for entry in folder.iterdir()
        if (named := CHECKPOINT.fullmatch(entry.name)) and (entry / "programs").is_dir()
    ]
    return max(found)[1] if found else None


def _openevolve(checkpoint: Path) -> Gathered:
    """An OpenEvolve checkpoint's programs, its best one first, then by its own score."""
    try:
        best = read_json(checkpoint / "metadata.json").get("best_program_id")
    except (Unreadable, AttributeError):
        best = None
    ranked, left_out, total = [], list[str](), 0
    for path in _files(checkpoint / "programs", left_out):
        if path.suffix != ".json" or total > TOTAL_LIMIT:
            continue
        try:
            program = read_json(path)
            seed, score = _program(program, path)
        except (Unreadable, KeyError, TypeError, AttributeError) as error:
            left_out.append(f"{path}: {error if isinstance(error, Unreadable) else 'it holds no program with code'}")
            continue
        total += len(seed.source)
        ranked.append((seed.origin["program"] != best, -score, path.name, seed))
    ranked.sort(key=lambda entry: entry[:3])
    return Gathered(tuple(seed for *_, seed in ranked), tuple(left_out))


def _program(program: dict[str, Any], path: Path) -> tuple[Seed, float]:
    code, metrics = program["code"], program.get("metrics") or {}
    if not isinstance(code, str):
        raise TypeError("code is no text")
    score = _number(metrics.get("combined_score"), missing=-math.inf)
    origin = {"kind": "openevolve", "path": str(path), "program": str(program.get("id", path.stem))[:100]}
    return Seed(code, origin | ({"score": score} if math.isfinite(score) else {})), score


def _number(value: Any, missing: float = math.inf) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if is_number else missing
