"""`kb-evolve runs`, `top` and `show`: what the database holds. They read while a search writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kb_evolve.commands.conversations import turn_json, turns_text
from kb_evolve.commands.evaluate import evaluation_text
from kb_evolve.commands.shared import (
    change_text,
    columns,
    db_option,
    emit_json,
    evaluated_json,
    json_option,
    lineage_text,
)
from kb_evolve.live import speedup_text

if TYPE_CHECKING:
    from islands.candidate import Candidate, Evaluated
    from islands.run import Run
    from islands.store import Store
    from islands.turns import Turn


@click.command(epilog="Example: kb-evolve runs --json")
@db_option
@json_option
def runs(db: str, as_json: bool) -> None:
    """List the runs, oldest first."""
    from islands.store import open_store

    with open_store(db, read_only=True) as store:
        found = [_run_json(store, run) for run in store.runs()]
    if as_json:
        emit_json({"runs": found})
        return
    header = ("run", "problem", "backend", "device", "precision", "evaluations", "best", "started")
    rows = [
        (
            *(entry[name] for name in header[:6]),
            entry["best_text"],
            entry["started_at"][:16].replace("T", " "),
        )
        for entry in found
    ]
    click.echo(columns(header, rows) if rows else f"{db} holds no run yet.")


def _run_json(store: Store, run: Run) -> dict[str, Any]:
    from kb_evolve.standing import best_of

    counts = store.counts(run.id)
    best = best_of(store, run.id)
    return {
        "run": run.name,
        "run_id": run.id,
        "problem": run.problem_id,
        "backend": run.backend,
        "device": run.device,
        "precision": run.precision,
        "evaluations": counts.measured,
        "attempts": counts.attempts,
        "verdicts": counts.verdicts,
        "best": best.candidate.id if best else None,
        "speedup": best.evaluation.speedup if best else None,
        "speedup_ci": best.evaluation.speedup_ci if best else None,
        "best_text": speedup_text(best),
        "started_at": run.started_at,
    }


@click.command(epilog="Example: kb-evolve top rmsnorm --limit 5")
@click.argument("ref", required=False)
@db_option
@click.option("--limit", default=10, show_default=True, type=click.IntRange(min=1), help="How many.")
@click.option(
    "--pareto", is_flag=True, help="Those that none beats in time, memory and error at once, per problem and device."
)
@json_option
def top(ref: str | None, db: str, limit: int, pareto: bool, as_json: bool) -> None:
    """List the fastest correct kernels, of all problems or of REF, over all runs of the database.

    The elites of the runs come first: they won their place in duels, what others show may be luck.
    """
    from islands.store import open_store
    from kb_evolve import standing

    if pareto:
        return _top_pareto(ref, db, limit, as_json)
    with open_store(db, read_only=True) as store:
        found = standing.top(store, ref, limit)
        names = {run.id: run.name for run in store.runs()}
        known = sorted({run.problem_id for run in store.runs()})
    if as_json:
        return emit_json(
            {"top": [evaluated_json(evaluated, _run_of(evaluated.candidate, names)) for evaluated in found]}
        )
    rows = [
        (
            evaluated.candidate.id,
            evaluated.evaluation.problem,
            speedup_text(evaluated),
            f"{evaluated.evaluation.kernel_ms:.4g}",
            "elite" if standing.is_elite(evaluated) else "",
            evaluated.candidate.mutator,
            _run_of(evaluated.candidate, names),
        )
        for evaluated in found
    ]
    header = ("id", "problem", "speedup", "kernel ms", "", "mutator", "run")
    return click.echo(columns(header, rows) if rows else _nothing(db, ref, known))


def _top_pareto(ref: str | None, db: str, limit: int, as_json: bool) -> None:
    from pathlib import Path

    from islands.fronts import fold, measured_in
    from islands.store import open_store
    from kb_evolve.commands.pareto import fronts_json, fronts_text

    fronts = fold(measured_in(Path(db), ref))
    if as_json:
        return emit_json({"fronts": fronts_json(fronts, limit)})
    if fronts:
        return click.echo(fronts_text(fronts, limit))
    with open_store(db, read_only=True) as store:
        return click.echo(_nothing(db, ref, sorted({run.problem_id for run in store.runs()})))


def _nothing(db: str, ref: str | None, known: list[str]) -> str:
    return f"{db} holds no correct kernel of {ref or 'any problem'}; its problems: {', '.join(known) or 'none'}."


def _run_of(candidate: Candidate, names: dict[str, str]) -> str:
    run_id = candidate.id.rpartition("-")[0]
    return names.get(run_id, run_id)


@click.command(epilog="Example: kb-evolve show k3x9d0qa-000042 --source > kernel.py")
@click.argument("id", metavar="ID")
@db_option
@click.option("--source", "only_source", is_flag=True, help="Print the source and nothing else.")
@click.option("--prompt", "only_prompt", is_flag=True, help="Print what its model was sent and what it answered.")
@json_option
def show(id: str, db: str, only_source: bool, only_prompt: bool, as_json: bool) -> None:
    """Show one candidate, or the best of a run: figures, lineage, source, or the conversation it came from.

    The beginning of an id is enough.
    """
    from islands.store import StoreError, open_store
    from kb_evolve.search import lineage_of
    from kb_evolve.standing import best_of, standing

    with open_store(db, read_only=True) as store:
        run = store.find_run(id)
        best = best_of(store, run.id) if run else None
        candidate = best.candidate if best else store.find_candidate(id)
        if candidate is None:
            raise StoreError(
                f"{db} holds no candidate and no run with a correct kernel named {id!r}: see `kb-evolve top`"
            )
        run = run or store.find_run(candidate.id.rpartition("-")[0])
        told = standing(store, run.id) if run else []
        evaluated = next((one for one in told if one.candidate.id == candidate.id), None)
        lineage = lineage_of(evaluated, told)
        turns = store.turns(run.id, candidate.number) if run and only_prompt else []
    if only_prompt:
        _show_turns(candidate, turns, as_json)
    elif only_source:
        click.echo(candidate.source, nl=False)
    elif as_json:
        emit_json(_candidate_json(candidate, evaluated, lineage, run.name if run else ""))
    else:
        click.echo(_candidate_text(candidate, evaluated, lineage, run.name if run else ""))


def _show_turns(candidate: Candidate, turns: list[Turn], as_json: bool) -> None:
    if as_json:
        emit_json({"id": candidate.id, "turns": [turn_json(turn) for turn in turns]})
    else:
        click.echo(turns_text(turns) or f"{candidate.id} came from {candidate.mutator}, which asks no model.")


def _candidate_json(
    candidate: Candidate, evaluated: Evaluated | None, lineage: tuple[Evaluated, ...], run_name: str
) -> dict[str, Any]:
    told = evaluated_json(evaluated, run_name) if evaluated else {"id": candidate.id, "run": run_name, "verdict": None}
    steps = [evaluated_json(entry, run_name) for entry in lineage]
    return {**told, "details": candidate.details, "source": candidate.source, "lineage": steps}


def _place(evaluated: Evaluated | None) -> list[str]:
    """Whether it is or was the elite of its run."""
    from islands.bouts import ELITE, FALLEN

    features = evaluated.evaluation.features if evaluated else {}
    lines = ["the elite of its run"] if ELITE in features else []
    return [*lines, f"was the elite of its run until {features[FALLEN]}"] if FALLEN in features else lines


def _candidate_text(
    candidate: Candidate, evaluated: Evaluated | None, lineage: tuple[Evaluated, ...], run_name: str
) -> str:
    lines = [
        f"{candidate.id} of run {run_name}: island {candidate.island}, generation {candidate.generation}",
        change_text(candidate),
        evaluation_text(evaluated.evaluation) if evaluated else "not judged yet",
        *_place(evaluated),
        "lineage:",
        lineage_text(lineage),
        "",
        candidate.source.rstrip(),
    ]
    return "\n".join(lines)
