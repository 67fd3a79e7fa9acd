"""`kb-evolve runs`, `top` and `show`: what the database holds. They read while a search writes."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kb_evolve.commands.conversations import turn_json, turns_text
from kb_evolve.commands.shared import db_option, emit_json, evaluated_json, json_option
from kb_evolve.commands.shown import Shown, part_text, shown_json, shown_text
from kb_evolve.commands.tables import age_text, exact_or_spelled, fitted, screen_width
from kb_evolve.live import speedup_text
from kb_evolve.report.text import one_line

if TYPE_CHECKING:
    from islands.candidate import Candidate, Evaluated
    from islands.queries import Health
    from islands.run import Run
    from islands.store import Store
    from islands.turns import Turn


@click.command(epilog="Example: kb-evolve runs --json")
@db_option
@json_option
def runs(db: str, as_json: bool) -> None:
    """List the runs, oldest first: who works on them, and how far they came.

    alive: a process works on it; silent: that process lives, but its heartbeat is old; done: its budget is used;
    stopped: by you; failed; dead: its process ended without a word, and the same command goes on.
    """
    from islands.store import open_store
    from kb_evolve.standing import bests

    with open_store(db, read_only=True) as store:
        all_runs = store.runs()
        elites = bests(store, [run.id for run in all_runs])
        found = [_run_json(store, run, elites[run.id], verdicts=as_json) for run in all_runs]
    if as_json:
        emit_json({"runs": found})
        return
    header: tuple[str, ...] = ("run", "status", "problem", "device", "best", "judged", "usd", "age")
    rows: list[tuple[object, ...]] = [
        (
            *(entry[name] for name in header[:4]),
            entry["best_text"],
            entry["evaluations"],
            f"{entry['usd']:.4g}" if entry["usd"] else "",
            age_text(entry["age_s"]),
        )
        for entry in found
    ]
    if not any(entry["usd"] for entry in found):
        header, rows = (*header[:6], "age"), [(*row[:6], row[7]) for row in rows]
    table = fitted(header, rows, screen_width(), shrink={"run": 14, "problem": 10}, drop=("device", "usd", "problem"))
    click.echo(table if rows else f"{db} holds no run yet.")
    for entry in found:
        if entry["status"] in ("silent", "failed", "dead"):
            click.echo(f"{one_line(entry['run'])} is {entry['status']}: {one_line(entry['status_reason'])}", err=True)


def _run_json(store: Store, run: Run, best: Evaluated | None, *, verdicts: bool) -> dict[str, Any]:
    """`verdicts` are counted only where they are wanted: that reads every evaluation."""
    from islands.queries import health, totals

    state, sums = health(store, run), totals(store, run.id)
    counts = store.counts(run.id) if verdicts else None
    return {
        "run": run.name,
        "run_id": run.id,
        "status": state.status,
        "status_reason": _status_reason(state),
        "problem": run.problem_id,
        "backend": run.backend,
        "device": run.device,
        "precision": run.precision,
        "evaluations": sums["measured"],
        **({"attempts": counts.attempts, "verdicts": counts.verdicts} if counts else {}),
        "usd": sums["cost_usd"],
        "best": best.candidate.id if best else None,
        "speedup": best.evaluation.speedup if best else None,
        "speedup_ci": best.evaluation.speedup_ci if best else None,
        "best_text": speedup_text(best),
        "started_at": run.started_at,
        "age_s": _age_s(run.started_at),
        "told_at": store.last_told_at(run.id),
    }


def _status_reason(state: Health) -> str:
    if state.owner is None:
        return state.reason
    owner = f"process {state.owner.pid} on {state.owner.host}"
    if state.status == "dead":
        return f"{owner} ended without a word; the same command goes on"
    return f"{owner}, heartbeat {max(time.time() - state.owner.beat_at, 0):.0f} s ago"


def _age_s(at: str) -> float:
    return time.time() - datetime.fromisoformat(at).timestamp()


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
    header = ("id", "problem", "speedup", "ms", "", "mutator", "run")
    shrink = {"problem": 8, "mutator": 8, "run": 8}
    return click.echo(
        fitted(header, rows, screen_width(), shrink=shrink, drop=("run",)) if rows else _nothing(db, ref, known)
    )


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
@click.option("--source", "part", flag_value="source", help="Print the source and nothing else.")
@click.option("--diff", "part", flag_value="diff", help="Print what it changed in its first parent.")
@click.option("--log", "part", flag_value="log", help="Print what its build and its run said.")
@click.option("--prompt", "part", flag_value="prompt", help="Print what its model was sent and what it answered.")
@json_option
def show(id: str, db: str, part: str | None, as_json: bool) -> None:
    """Show one candidate, or the best of a run: figures, times, lineage, change; or one of its texts whole.

    The beginning of an id is enough. On a terminal escapes and invisible characters of texts are spelled out; into a
    file or a pipe texts go exactly as they are.
    """
    from islands.queries import times_of
    from islands.store import StoreError, open_store
    from kb_evolve.standing import line_of

    with open_store(db, read_only=True) as store:
        run = store.find_run(id)
        line = line_of(store, run.id) if run else []
        candidate = line[-1].candidate if line else store.find_candidate(id)
        if candidate is None:
            raise StoreError(
                f"{db} holds no candidate and no run with a correct kernel named {id!r}: see `kb-evolve top`"
            )
        run = run if line else store.find_run(candidate.id.rpartition("-")[0])
        if run and not line and (as_json or part not in ("source", "prompt")):
            line = line_of(store, run.id, candidate.id)
        told = line[-1] if line and line[-1].candidate.id == candidate.id else None
        turns = store.turns(run.id, candidate.number) if run and part == "prompt" else []
        found = Shown(candidate, told, tuple(line), run.name if run else "", times_of(store, candidate.id))
    if part == "prompt":
        _show_turns(found, turns, as_json)
    elif as_json:
        emit_json(shown_json(found))
    elif part is not None:
        click.echo(part_text(found, part), nl=part != "source", color=True)  # else click takes escapes out
    else:
        click.echo(shown_text(found))


def _show_turns(shown: Shown, turns: list[Turn], as_json: bool) -> None:
    candidate = shown.candidate
    if as_json:
        emit_json({"id": candidate.id, "turns": [turn_json(turn) for turn in turns]})
    elif turns:
        click.echo(exact_or_spelled(turns_text(turns)), color=True)
    else:
        click.echo(
            f"{candidate.id} came from {one_line(candidate.mutator)}, which asks no model. All that models answered in "
            f"its run: `kb-evolve export {one_line(shown.run)} --format replies --out DIR`"
        )
