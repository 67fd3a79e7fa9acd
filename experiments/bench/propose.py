"""What a proposal costs in CPU time apart from the model, with many candidates in the database and the population.

    python -m experiments.bench.propose --out experiments/bench/results/propose.json

A run on `attention_block` is filled with candidates as a search would leave them (programs of some 7 KB in many
structures, twins that differ in tunables, a third of them failed with 3 KB of log, a reason given for each), and told
to a population, a bandit over 10 arms, the lessons and the memory of known programs. Then tickets are asked for and
followed to a new program that is recorded, with an in-process model whose own time is not counted.
"""

from __future__ import annotations

import contextlib
import cProfile
import json
import os
import pstats
import re
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import click

from experiments.bench.model_overlap import OPERATORS
from experiments.bench.records import about
from fitness.evaluation import Evaluation, Verdict
from fitness.replay import Replay
from islands.candidate import Candidate, Evaluated, Ticket
from islands.population import Population
from islands.run import Run
from islands.store import Store, open_store
from kb_evolve.briefing import brief_of
from kb_evolve.config import Config, resolve
from kb_evolve.journal import StoreJournal
from kb_evolve.judging import evaluation_key, make_job
from kb_evolve.known import Known
from kb_evolve.search import Search
from mutators.choose import Chooser
from mutators.dialogue import Message, Reply, Request
from mutators.insights import Insights
from mutators.operators import ModelOperator
from mutators.prompt import PromptBuilder
from mutators.proposal import Usage
from problems.catalogue import load
from problems.problem import Problem

PROBLEM = "attention_block"
MODELS = ("openai/large", "openai/small")
TARGET_MS = 5.0
PROPOSING = ("ask", "choose", "prompt", "extract")
"""Parts that are held against the target. Lessons come on plateaus only (here with every ticket, the dearest case);
`novelty` and `record` are what keeping a proposal costs."""
CONSTANT = re.compile(r"^constexpr int64_t TILE = \d+;.*$", re.MULTILINE)
LOG = "candidate.cpp:57:31: error: no matching function for call to 'dot(const float*&, const float&, int64_t)'\n" * 30


class Clock:
    """CPU seconds of this thread by part; of nested parts the inner one's count for it alone."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self._open: list[float] = []

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Times a block."""
        began_s = time.thread_time()
        self._open.append(0.0)
        try:
            yield
        finally:
            took_s = time.thread_time() - began_s
            self.rows[-1][name] += took_s - self._open.pop()
            if self._open:
                self._open[-1] += took_s

    def summary(self) -> dict[str, dict[str, float]]:
        """Mean, median and 99th percentile of each part, of proposing and of all, in milliseconds."""
        sums = [
            {"proposing": sum(row.get(name, 0.0) for name in PROPOSING), "all": sum(row.values())} for row in self.rows
        ]
        rows = [{**row, **total} for row, total in zip(self.rows, sums, strict=True)]
        names = sorted({name for row in rows for name in row}, key=lambda name: -sum(row.get(name, 0) for row in rows))
        return {name: spread([1e3 * row.get(name, 0.0) for row in rows]) for name in names}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, median and 99th percentile."""
    ordered = sorted(values)
    return {
        "mean_ms": round(statistics.mean(ordered), 3),
        "median_ms": round(statistics.median(ordered), 3),
        "p99_ms": round(ordered[int(0.99 * len(ordered))], 3),
    }


@dataclass
class Writer:
    """A model in this process: edits or rewrites the program that is shown. Its thinking is not counted."""

    journal: StoreJournal
    clock: Clock
    name: str = "writer"
    shown: dict[int, str] = field(default_factory=dict)

    def ask(self, request: Request) -> Reply:
        """A reply that follows from the ticket, recorded as every reply is."""
        with self.clock.part("record"):
            self.journal.open(request, 0.01)
        with self.clock.part("model"):
            reply = Reply(self._text(request), usage=Usage(request.model, 6_000, 600, 0.01))
        with self.clock.part("record"):
            self.journal.close(request, reply)
        return reply

    def _text(self, request: Request) -> str:
        source, line = self.shown[request.number], f"constexpr int64_t NEW{request.number} = 1;"
        wants_edits = "<<<<<<< SEARCH" in request.messages[1].content.rpartition("# Form of the answer")[2]
        said = "RATIONALE: one more constant, which should change nothing.\n\n"
        before = next(iter(re.findall(CONSTANT, source)))
        if wants_edits:
            return f"{said}<<<<<<< SEARCH\n{before}\n=======\n{line}\n{before}\n>>>>>>> REPLACE\n"
        return f"{said}```python\n{source.replace(before, f'{line}{chr(10)}{before}')}\n```\n"


class Timed:
    """A prompt builder under the clock; keeps which program each prompt showed."""

    def __init__(self, prompts: PromptBuilder, clock: Clock, shown: dict[int, str]) -> None:
        self.prompts, self.clock, self.shown = prompts, clock, shown
        self.tokens: list[int] = []

    def build(self, operator: str, ticket: Ticket, insights: Sequence[str] = ()) -> Any:
        with self.clock.part("prompt"):
            prompt = self.prompts.build(operator, ticket, insights)
        self.shown[ticket.number] = prompt.source
        self.tokens.append(prompt.tokens)
        return prompt

    def follow_up(self, prompt: Any, reply_text: str, reason: str) -> tuple[Message, ...]:
        with self.clock.part("prompt"):
            return self.prompts.follow_up(prompt, reply_text, reason)


def made(number: int, random: Random, parent: Evaluated, run: Run) -> Evaluated:
    """A candidate that a search might hold: a new structure, or its parent with another tile."""
    source = parent.candidate.source
    if random.random() < 0.3:
        source = CONSTANT.sub(
            f"constexpr int64_t TILE = {random.choice((4, 8, 16, 32, 64))};  // tune: 4 8 16 32 64", source
        )
    source = f"{source.rstrip()}\n# {number}\n"
    if "// tune" in source and random.random() < 0.7:
        line = f"constexpr int64_t STEP{number} = {number};\n"
        source = re.sub(r"(constexpr int64_t STEP\d+ = \d+;\n)?(?=constexpr int64_t TILE)", line, source, count=1)
    operator = random.choice(OPERATORS)
    candidate = Candidate(
        f"{run.id}-{number:06d}", number, number % 4, parent.candidate.generation + 1, "cpp", source,
        (parent.candidate.id,), operator, f"Unrolled by {number % 7} so that the chains are independent.",
        {"arm": f"{operator}@{random.choice(MODELS)}", "turns": 1},
    )  # fmt: skip
    return Evaluated(candidate, judged(candidate, random))


def judged(candidate: Candidate, random: Random) -> Evaluation:
    """A scripted evaluation: two of three are correct."""
    fields: dict[str, Any] = {"problem": PROBLEM, "backend": "cpp", "source_sha256": candidate.source_sha256}
    fields |= {"device_name": "replay", "evaluate_s": 1.0, "compile_s": 0.5}
    if random.random() < 1 / 3:
        verdict = random.choice((Verdict.COMPILE_ERROR, Verdict.WRONG_RESULT, Verdict.RUNTIME_ERROR))
        return Evaluation(verdict, f"error {random.randrange(9)} at element {candidate.number}", log=LOG, **fields)
    time_ms = 10 ** (1 - random.random() * candidate.number / 10_000)
    ci, speedup = (time_ms * 0.99, time_ms * 1.01), 10 / time_ms
    features = {"gflop_per_s": 20 / time_ms, "gb_per_s": 8 / time_ms, "binary_sha256": candidate.source_sha256}
    return Evaluation(
        Verdict.CORRECT, "faster than the reference", kernel_ms=time_ms, kernel_ms_ci=ci, reference_ms=10.0,
        speedup=speedup, speedup_ci=(speedup * 0.99, speedup * 1.01), peak_mem_bytes=1 << random.randrange(20, 24),
        error_ratio=1.0, features=features, **fields,
    )  # fmt: skip


def fill(store: Store, run: Run, config: Config, problem: Problem, count: int) -> None:
    """Adds candidates until the run holds `count`."""
    random = Random("fill")
    islands: dict[int, list[Evaluated]] = defaultdict(list)
    for one in store.history(run.id):
        islands[one.candidate.island].append(one)
    with store.transaction():
        for number in range(len(store.history(run.id)), count):
            members = islands[number % 4]
            one = made(number, random, random.choice(members[-50:]), run)
            members += [one] if one.evaluation.is_correct else []
            store.open_attempt(run.id, number, number % 4, one.candidate.mutator, one.candidate.parent_ids)
            store.add_candidate(run.id, one.candidate)
            store.close_attempt(run.id, number, "candidate")
            key = evaluation_key(make_job(problem, one.candidate.source, config), run.problem_sha256)
            store.add_evaluation(run.id, one.candidate.id, one.evaluation, key)


class Bench:
    """All that a proposal passes through, told the run's history."""

    def __init__(self, store: Store, run: Run, config: Config, problem: Problem) -> None:
        self.store, self.run = store, run
        self.clock = Clock()
        self.population = Population(config.population, run.id, run.seed)
        brief = brief_of(run, problem, config)
        self.insights = Insights(brief)
        writer = Writer(StoreJournal(store, run.id), self.clock)
        secret = bytes.fromhex(run.config["prompt_secret"])
        self.prompts = Timed(PromptBuilder(brief, secret, config.models.prompt_tokens), self.clock, writer.shown)
        operators = [
            ModelOperator(name, writer, model, self.prompts, insights=self._recall)
            for model in MODELS
            for name in OPERATORS
        ]
        self.chooser = Chooser(list(operators))
        self.known = Known(store.find_candidate, store.told_of)
        self.told: dict[str, Evaluation] = {}

    def _recall(self, ticket: Ticket) -> Sequence[str]:
        with self.clock.part("lessons"):
            return self.insights.recall(ticket)

    def tell(self, one: Evaluated) -> None:
        """As the loop remembers an evaluation."""
        parents = one.candidate.parent_ids
        before = self.told.get(parents[0]) if parents else None
        self.known.add(one.candidate)
        self.population.tell(one)
        self.chooser.tell(one, before)
        self.insights.tell(one, before)
        self.told[one.candidate.id] = one.evaluation

    def propose(self, number: int) -> str:
        """One ticket from asking to the recorded candidate: how it ended."""
        part, store, run_id = self.clock.part, self.store, self.run.id
        self.clock.rows.append(defaultdict(float))
        with part("ask"):
            ticket = self.population.ask(number)
        with part("lessons"):
            self.insights.hold(ticket)
        with part("choose"):
            mutator = self.chooser.order(ticket)[0]
        with part("record"):
            store.open_attempt(run_id, number, ticket.island, mutator.name, (ticket.parent.candidate.id,))
        with part("extract"):
            proposal = mutator.propose(ticket)
        if proposal.source is None:
            with part("record"):
                store.close_attempt(run_id, number, "refused", reason=proposal.refusal or "")
            return "refused"
        with part("novelty"):
            is_known = self.known.name_of(ticket.island, proposal.source) is not None
        child = Candidate(
            f"{run_id}-{number:06d}", number, ticket.island, 1, "cpp", proposal.source, proposal.parent_ids,
            proposal.mutator, proposal.rationale, proposal.details,
        )  # fmt: skip
        with part("record"), store.transaction():
            store.add_candidate(run_id, child)
            store.close_attempt(run_id, number, "candidate", usage=proposal.usage)
        return "repeated" if is_known else "candidate"


def measure(folder: Path, candidates: int, asks: int) -> tuple[Bench, dict[str, Any]]:
    """Fills a database, tells its history, follows tickets."""
    problem, db = load(PROBLEM), folder / "propose.db"
    run_id = Search(PROBLEM, db=str(db), run="propose", evaluations=1, workbench=Replay()).run().run.id
    store = open_store(db)
    run = next(one for one in store.runs() if one.id == run_id)
    config = resolve({"run": {"problem": PROBLEM}})
    fill(store, run, config, problem, candidates)
    bench = Bench(store, run, config, problem)
    history = store.history(run.id)
    began_s = time.thread_time()
    for one in history:
        bench.tell(one)
    tell_ms = 1e3 * (time.thread_time() - began_s) / len(history)
    for number in range(candidates, candidates + 20):
        bench.propose(number)
    bench.clock.rows.clear()
    ends = [bench.propose(number) for number in range(candidates + 20, candidates + 20 + asks)]
    for row in bench.clock.rows:
        row.pop("model", None)
    return bench, {
        "candidates": len(history), "asks": asks, "ends": {end: ends.count(end) for end in sorted(set(ends))},
        "db_bytes": db.stat().st_size, "tell_ms": round(tell_ms, 3), "lessons": len(bench.insights),
        "prompt_tokens_median": statistics.median(bench.prompts.tokens), "cpu": bench.clock.summary(),
    }  # fmt: skip


@click.command()
@click.option("--candidates", default=10_000, show_default=True)
@click.option("--asks", default=400, show_default=True)
@click.option("--note", default="", help="What else the machine did.")
@click.option("--profile", type=click.Path(path_type=Path), help="File for a profile of the asks.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(candidates: int, asks: int, note: str, profile: Path | None, out: Path) -> None:
    """Writes the CPU time of a proposal by part. Exits with 1 when the mean of proposing misses the target."""
    with tempfile.TemporaryDirectory() as folder:
        bench, found = measure(Path(folder), candidates, asks)
        if profile is not None:
            with cProfile.Profile() as watched:
                for number in range(candidates + asks + 20, candidates + asks + 220):
                    bench.propose(number)
            pstats.Stats(watched).dump_stats(profile)
        bench.store.close()
    document = {
        "about": {**about("cpu"), "load_average": os.getloadavg()[1], "note": note},
        "definitions": {
            "ask": "Population.ask", "choose": "Chooser.order", "lessons": "held for the ticket and recalled",
            "prompt": "PromptBuilder.build", "extract": "the rest of ModelOperator.propose: the program in the reply",
            "novelty": "the fingerprint, and whether the island has it",
            "proposing": f"the sum of {', '.join(PROPOSING)}", "all": "the sum of all; the model is not in it",
            "record": "attempt, request, reply, candidate and outcome in SQLite: CPU of this thread, not the disk",
            "tell_ms": "mean of telling one evaluation to population, bandit, lessons and memory",
        },
        "target_ms": TARGET_MS, **found,
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    click.echo(json.dumps(found))
    raise SystemExit(0 if found["cpu"]["proposing"]["mean_ms"] < TARGET_MS else 1)


if __name__ == "__main__":
    main()
