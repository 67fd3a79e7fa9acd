"""What several commands share: options, JSON documents, aligned tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from islands.candidate import Candidate, Evaluated
from kb_evolve.commands.tables import wrapped
from kb_evolve.export.shareable import finite
from kb_evolve.live import speedup_text
from kb_evolve.report.text import one_line
from kb_evolve.seeding.seed import ORIGIN

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_DB = "kb_evolve.db"

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
db_option = click.option(
    "--db", default=DEFAULT_DB, show_default=True, metavar="FILE", help="The database of problems and runs."
)


def judge_options(command: F) -> F:
    """--backend, --device, --precision, --kernelbench, --sandbox: how and where a kernel is judged."""
    options = (
        click.option("--backend", metavar="B", help="Kernel language: cpp (default), cuda or triton."),
        click.option(
            "--device",
            metavar="D",
            help="Where kernels run: cpu, cuda or cuda:N. By default cpu for cpp, else the first GPU.",
        ),
        click.option(
            "--arch", metavar="A", help="What GPU code is compiled for, such as sm_90; the device by default."
        ),
        click.option("--precision", metavar="P", help="fp32 (default), tf32, fp16 or bf16."),
        click.option(
            "--kernelbench",
            metavar="PATH",
            envvar="KERNELBENCH_ROOT",
            help="A KernelBench checkout or data set, for level1/19.",
        ),
        click.option(
            "--sandbox",
            metavar="S",
            help="auto (default) refuses below level S2 (docs/judge.md); none runs candidates without one.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def emit_json(document: Any) -> None:
    """The document on stdout; numbers that JSON cannot write (nan, inf) become null."""
    click.echo(json.dumps(finite(document), indent=2, allow_nan=False))


def evaluated_json(evaluated: Evaluated, run_name: str) -> dict[str, Any]:
    """The outer contract's names for a candidate and its evaluation; the source is not included."""
    candidate = evaluated.candidate
    document = evaluated.evaluation.to_json()
    return {
        "id": candidate.id,
        "run": run_name,
        "island": candidate.island,
        "generation": candidate.generation,
        "parent_ids": list(candidate.parent_ids),
        "mutator": candidate.mutator,
        "rationale": candidate.rationale,
        **document,
    }


CHANGE_LINES = 3
"""Lines of a terminal that one step of a lineage may take."""


def lineage_text(lineage: Sequence[Evaluated], width: int | None) -> str:
    """The steps from the seed to the last with what was changed, which is a candidate's own words.

    One line each; on a terminal of `width` columns at most CHANGE_LINES.
    """
    return "\n".join(_step_text(step, width) for step in lineage)


def _step_text(step: Evaluated, width: int | None) -> str:
    head = f"  {step.candidate.id}  {speedup_text(step):24}  "
    return wrapped(head, one_line(change_text(step.candidate), 400), width, CHANGE_LINES)


def change_text(candidate: Candidate) -> str:
    """Who made the candidate, and what was changed: `tune: TILE 32 -> 64`; where a seed came from."""
    if candidate.generation == 0:
        return f"seed: {candidate.rationale}" if ORIGIN in candidate.details else "the first kernel"
    return f"{candidate.mutator}: {candidate.rationale or 'no reason given'}"
