"""A run's correct programs as a checkpoint of OpenEvolve's, with our judge as the evaluator that goes on from there."""

from __future__ import annotations

import heapq
import json
import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from islands.candidate import Evaluated
from islands.run import Run
from kb_evolve.export.kernelbench import ExportError
from kb_evolve.export.whole import staged

if TYPE_CHECKING:
    from openevolve.database import Program

PROGRAMS = 1_000
"""As many as OpenEvolve's population holds by default; the fastest."""
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Ids that OpenEvolve can make file names of; a database from elsewhere may hold others."""
CARRIED = Path(__file__).parent / "carried" / "openevolve_evaluator.py"
METADATA = "metadata.json"
HEAD = """# openevolve-run initial_program.py evaluator.py --config config.yaml --checkpoint checkpoints/{checkpoint}
# `llm:` is yours to add. The island map is OpenEvolve's own; combined_score is the speedup over eager PyTorch.
"""


def export_openevolve(run: Run, elite: Evaluated | None, history: Iterable[Evaluated], out: str | Path) -> list[Path]:
    """Writes a new or empty folder from which `openevolve-run` goes on; the files' paths.

    It holds `checkpoints/checkpoint_N`, written by OpenEvolve's own database after N candidates, `initial_program.py`
    (the elite), `evaluator.py` (judges with kb_evolve in processes of its own), `problem.py`, `judge.json` and
    `config.yaml`. `combined_score` is the speedup; nobody's is above the elite's, since a higher figure of one that has
    not won its duels may be luck. Raises ExportError when no candidate is correct or the folder is not empty,
    WriteError when it cannot be written.
    """
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder} is no empty folder: name another one with --out")
    if elite is None:
        raise ExportError(f"run {run.name!r} has no correct candidate, so there is nothing to go on from")
    if not _can_go(elite):
        raise ExportError(f"the elite's id {elite.candidate.id!r} cannot name a file, as OpenEvolve's ids do")
    chosen, number = _chosen(history, elite)
    settings = _settings(run, chosen)
    checkpoint = f"checkpoint_{number}"
    last = f"checkpoints/{checkpoint}/{METADATA}"
    texts = {
        "initial_program.py": elite.candidate.source,
        "evaluator.py": CARRIED.read_text(encoding="utf-8"),
        "problem.py": run.problem_source,
        "judge.json": json.dumps(_judge(run), indent=2) + "\n",
        "config.yaml": HEAD.format(checkpoint=checkpoint) + _yaml(settings),
    }
    with staged(folder, last=last) as stage:
        for name, text in texts.items():
            (stage / name).write_bytes(text.encode())
        _save(settings["database"], chosen, elite, stage / "checkpoints" / checkpoint, number)
    return [folder / name for name in (*texts, last)]


def _chosen(history: Iterable[Evaluated], elite: Evaluated) -> tuple[list[Evaluated], int]:
    """The elite and the fastest correct candidates in the order told, each source once, and how many were told."""
    number, seen = 0, {elite.candidate.source_sha256}
    fastest: list[tuple[bool, float, int, Evaluated]] = []
    for number, one in enumerate(history, 1):
        is_elite = one.candidate.id == elite.candidate.id
        if is_elite or (one.candidate.source_sha256 not in seen and _can_go(one)):
            seen.add(one.candidate.source_sha256)
            entry = (is_elite, one.evaluation.speedup or 0.0, -number, one)
            (heapq.heappush if len(fastest) < PROGRAMS else heapq.heappushpop)(fastest, entry)
    return [one for *_, one in sorted(fastest, key=lambda entry: -entry[2])], number


def _can_go(one: Evaluated) -> bool:
    """Whether it is correct, and so timed, and its id is one."""
    return one.evaluation.is_correct and PLAIN.fullmatch(one.candidate.id) is not None


def _save(settings: dict[str, Any], chosen: list[Evaluated], elite: Evaluated, folder: Path, number: int) -> None:
    from openevolve.config import DatabaseConfig
    from openevolve.database import ProgramDatabase

    logging.getLogger("openevolve").setLevel(logging.ERROR)  # it tells of every cell that is taken
    database = ProgramDatabase(DatabaseConfig(**settings, log_prompts=False, random_seed=None))
    ids, islands = {one.candidate.id for one in chosen}, _islands(chosen)
    for one in chosen:
        program = _program(one, elite, ids)
        database.add(program, iteration=one.candidate.number, target_island=islands.index(one.candidate.island))
    database.best_program_id = elite.candidate.id
    database.save(str(folder), number)


def _islands(chosen: list[Evaluated]) -> list[int]:
    """Those that have programs; OpenEvolve's are counted from 0 on in this order."""
    return sorted({one.candidate.island for one in chosen})


def _program(one: Evaluated, elite: Evaluated, ids: set[str]) -> Program:
    from openevolve.database import Program

    candidate, evaluation = one.candidate, one.evaluation
    assert evaluation.speedup is not None and elite.evaluation.speedup is not None
    metrics = {
        "combined_score": min(evaluation.speedup, elite.evaluation.speedup),
        "speedup": evaluation.speedup,
        "correct": 1.0,
        **({"kernel_ms": evaluation.kernel_ms} if evaluation.kernel_ms is not None else {}),
    }
    return Program(
        id=candidate.id,
        code=candidate.source,
        changes_description=candidate.rationale,
        parent_id=next((parent for parent in candidate.parent_ids if parent in ids), None),
        generation=candidate.generation,
        metrics=metrics,
        metadata={"mutator": candidate.mutator, "source_sha256": candidate.source_sha256},
    )


def _settings(run: Run, chosen: list[Evaluated]) -> dict[str, Any]:
    """OpenEvolve's settings that follow from the run."""
    longest = max(len(one.candidate.source) for one in chosen)
    task = (
        f"You write fast kernels in {run.backend} for {run.device}. The program's class ModelNew must compute what "
        f"Model does in this problem:\n\n```python\n{run.problem_source.strip()}\n```"
    )
    return {
        "language": "python",
        "max_code_length": max(10_000, 2 * longest),
        "prompt": {"system_message": task},
        "database": {"num_islands": len(_islands(chosen)), "population_size": PROGRAMS, "archive_size": 100},
        "evaluator": {"timeout": 900, "cascade_evaluation": False, "parallel_evaluations": 1},
    }


def _judge(run: Run) -> dict[str, str]:
    """Options of `kb-evolve eval`."""
    return {"backend": run.backend, "device": run.device, "precision": run.precision}


def _yaml(settings: dict[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(settings, sort_keys=False, width=120)
    return text
