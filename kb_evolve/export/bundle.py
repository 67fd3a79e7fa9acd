"""A run's elite as a folder that a stranger can read, check and judge again: `kb-evolve verify`."""

from __future__ import annotations

import dataclasses
import difflib
import json
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from islands.bouts import BOUT, FOUGHT_OUT
from islands.candidate import Evaluated
from islands.run import Event, Run
from islands.store import Store
from islands.turns import Turn
from kb_evolve.export.kernelbench import ExportError, no_elite
from kb_evolve.export.markdown import bundle_readme
from kb_evolve.export.sealed import seal
from kb_evolve.export.shareable import finite, shareable_config
from kb_evolve.standing import line_of

FORMAT = "kb_evolve bundle"
VERSION = 1
INDEX, PROBLEM, ELITE = "bundle.json", "problem.py", "elite.py"
EVALUATIONS, CONVERSATIONS, ENVIRONMENT = "evaluations.json", "conversations.json", "environment.json"

CONVERSATIONS_LIMIT = 16 << 20
"""Bytes of prompts and replies as they are written; what is over it is left out, the elite's own come first."""
DIFF_LINES = 4_000
"""Lines of a program that are compared: difflib's time can grow with the square of them."""
PACKAGES = ("kb_evolve", "torch", "numpy", "triton", "cuda-core", "litellm", "openevolve")


def export_bundle(store: Store, run: Run, out_dir: str | Path) -> list[Path]:
    """Writes the elite with all that belongs to it into `out_dir`, a new or empty folder; the files' paths.

    ExportError when the run has no correct candidate; BundleError when the folder is not empty.
    """
    line = line_of(store, run.id)
    if not line:
        raise ExportError(no_elite(run, store.summaries(run.id)))
    turns, left_out = _turns(store, run, line)
    return seal(Path(out_dir), contents(run, line, turns, store.events(run.id), left_out))


def contents(
    run: Run, line: Sequence[Evaluated], turns: Sequence[Turn], events: Sequence[Event], left_out: int
) -> dict[str, str]:
    """The bundle's files, texts by path."""
    elite, files = line[-1], _sources(line)
    documents = {
        INDEX: _index(run, line, left_out),
        EVALUATIONS: [_evaluations(one, events) for one in line],
        CONVERSATIONS: [dataclasses.asdict(turn) for turn in turns],
        ENVIRONMENT: _environment(run, elite),
    }
    return {
        "README.md": bundle_readme(run, line, left_out),
        PROBLEM: run.problem_source,
        **files,
        **{name: _json(document) for name, document in documents.items()},
    }


def file_of(line: Sequence[Evaluated], index: int) -> str:
    """The path of the source of a member of the lineage."""
    return ELITE if index == len(line) - 1 else f"lineage/{index:03}.py"


def _sources(line: Sequence[Evaluated]) -> dict[str, str]:
    files = {}
    for index, one in enumerate(line):
        files[file_of(line, index)] = one.candidate.source
        if index:
            names = file_of(line, index - 1), file_of(line, index)
            files[f"lineage/{index:03}.diff"] = _diff(line[index - 1].candidate.source, one.candidate.source, names)
    return files


def _diff(before: str, after: str, names: tuple[str, str]) -> str:
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > DIFF_LINES:
        return f"{names[0]} and {names[1]} have more than {DIFF_LINES} lines: not compared\n"
    return "".join(f"{line}\n" for line in difflib.unified_diff(old, new, *names, lineterm=""))


def _turns(store: Store, run: Run, line: Sequence[Evaluated]) -> tuple[list[Turn], int]:
    """Prompts and replies of the lineage, the elite's last, and how many were left out as too long."""
    kept: list[Turn] = []
    size = left_out = 0
    for one in reversed(line):
        for turn in reversed(store.turns(run.id, one.candidate.number)):
            size += len(_json(dataclasses.asdict(turn)))
            if size > CONVERSATIONS_LIMIT:
                left_out += 1
            else:
                kept.append(turn)
    return kept[::-1], left_out


def _index(run: Run, line: Sequence[Evaluated], left_out: int) -> dict[str, Any]:
    """What the bundle holds, and of which file which candidate came."""
    members = []
    for index, one in enumerate(line):
        fields = dataclasses.asdict(one.candidate)
        del fields["source"], fields["digests"]
        digest = {"source_sha256": one.candidate.source_sha256}
        members.append({"file": file_of(line, index), **fields, **digest})
    return {
        "format": FORMAT,
        "version": VERSION,
        "problem": {"id": run.problem_id, "sha256": run.problem_sha256},
        "run": {"id": run.id, "name": run.name, "started_at": run.started_at, "git_commit": run.git_commit},
        "backend": run.backend,
        "precision": run.precision,
        "elite": line[-1].candidate.id,
        "lineage": members,
        "conversations_left_out": left_out,
    }


def _evaluations(one: Evaluated, events: Sequence[Event]) -> dict[str, Any]:
    """What counts now, and every measurement of it that is on record apart."""
    measured = [
        {"kind": event.kind, "at": event.at, **event.fields}
        for event in events
        if event.kind in (BOUT, FOUGHT_OUT) and event.fields.get("candidate") == one.candidate.id
    ]
    return {
        "candidate": one.candidate.id,
        "evaluation": dataclasses.asdict(one.evaluation),
        "measured_again": measured,
    }


def _environment(run: Run, elite: Evaluated) -> dict[str, Any]:
    """Where the figures come from, and the versions on the machine that wrote the bundle."""
    evaluation = elite.evaluation
    return {
        "device": run.device,
        "device_name": evaluation.device_name,
        "sandbox": evaluation.sandbox,
        "tier": evaluation.tier,
        "judge_sha256": evaluation.judge_sha256,
        "protocol": evaluation.protocol,
        "seed": run.seed,
        "config": shareable_config(run),
        "exported_by": {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "packages": {name: version for name in PACKAGES if (version := _version(name))},
        },
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _json(document: Any) -> str:
    """JSON in ASCII; a number that JSON cannot write (nan, inf) becomes null."""
    return json.dumps(finite(document), indent=2, ensure_ascii=True, allow_nan=False) + "\n"
