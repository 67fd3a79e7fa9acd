"""A writer of the store that is killed again and again: what it acknowledged is there, once, and in order.

The writer is a forked process that asks a population, records, tells and says so over a pipe, one line for each thing
that is done. No judge takes part, so a kill costs a fraction of a second and hits the database's own code.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import os
import random
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.population import Population, PopulationConfig
from islands.run import Run, utc_now
from islands.store import Store, open_store

RUN = "killed00"
PROBLEM = "class Model: ...\n"
PROBLEM_SHA256 = hashlib.sha256(PROBLEM.encode()).hexdigest()
ISLANDS = 4
LONGEST_LIFE_S = 0.12


def kill_store(kills: int, seeds: int, within: Path | None = None) -> dict[str, Any]:
    """`kills` kills spread over `seeds` databases; what was lost, counted twice or differs from a replay.

    The databases are made in a folder within `within`, by default the system's for temporary files.
    """
    started = time.monotonic()
    sums: dict[str, Any] = {"kills": 0, "acknowledged": 0, "lost": 0, "twice": 0, "findings": 0, "unequal_replays": 0}
    with tempfile.TemporaryDirectory(dir=within) as folder:
        for seed in range(seeds):
            share = kills // seeds + (seed < kills % seeds)
            found = _one_database(Path(folder) / f"{seed}.db", share, random.Random(seed))
            sums = {name: sums[name] + found[name] for name in sums}
    return sums | {"seeds": seeds, "wall_s": round(time.monotonic() - started, 1)}


def _one_database(db: Path, kills: int, moments: random.Random) -> dict[str, int]:
    found = {"kills": kills, "acknowledged": 0, "lost": 0, "twice": 0, "findings": 0, "unequal_replays": 0}
    before: list[str] = []
    for _ in range(kills):
        lines = [line.split() for line in _killed(db, moments.uniform(0, LONGEST_LIFE_S))]
        acknowledged = [words[1] for words in lines if words[0] == "told"]
        lives = {int(words[1]): words[2] for words in lines if words[0] == "live"}
        told, twice, findings, digest = _asked(_look, db, max(lives, default=0))
        # At most the one that was being told when the kill came is there without having been acknowledged.
        expected = before + acknowledged
        found["acknowledged"] += len(acknowledged)
        found["lost"] += len(expected) if told[: len(expected)] != expected or len(told) > len(expected) + 1 else 0
        found["twice"] += twice
        found["findings"] += findings
        found["unequal_replays"] += bool(lives) and digest != lives[max(lives)]
        before = told
    return found


def _killed(db: Path, life_s: float) -> list[str]:
    """What a writer said that was killed `life_s` after its first word."""
    reader, pid = _forked(lambda say: _write(db, say))
    with os.fdopen(reader) as file:
        lines = [file.readline()]
        time.sleep(life_s)
        os.kill(pid, signal.SIGKILL)
        lines += file.readlines()
    os.waitpid(pid, 0)
    return [line for line in lines if line.endswith("\n")]


def _asked(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns in another process: one that forks must not have the file open."""
    reader, pid = _forked(lambda say: say(repr(function(*arguments))))
    with os.fdopen(reader) as file:
        text = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status or not text:
        raise RuntimeError(f"the process that looks into the database ended with {status}")
    return ast.literal_eval(text)


def _forked(function: Callable[[Callable[[str], None]], None]) -> tuple[int, int]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return reader, pid
    try:

        def say(text: str) -> None:
            os.write(writer, f"{text}\n".encode())

        function(say)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _write(db: Path, say: Callable[[str], None]) -> None:
    """Resumes the run, then asks, records and tells until it is killed."""
    with open_store(db) as store:
        if store.find_run(RUN) is None:
            store.create_run(_run())
        say("open")
        with store.lease(RUN):
            population = _replay(store.history(RUN))
            for attempt in store.attempts(RUN):
                if attempt.outcome is None:
                    store.close_attempt(RUN, attempt.number, "lost")
            known = {entry.candidate.id for entry in store.history(RUN)} | {one.id for one in store.pending(RUN)}
            seeds = [seed for seed in population.seed_candidates(_source(0), "cpp") if seed.id not in known]
            for candidate in store.pending(RUN):
                _tell(store, population, candidate, say)
            for seed in seeds:
                store.add_candidate(RUN, seed)
                _tell(store, population, seed, say)
            for number in itertools.count(store.next_number(RUN)):
                _step(store, population, number, say)


def _step(store: Store, population: Population, number: int, say: Callable[[str], None]) -> None:
    ticket = population.ask(number)
    parent = ticket.parent.candidate
    store.open_attempt(RUN, number, ticket.island, "tune", (parent.id,))
    candidate = Candidate(
        f"{RUN}-{number:06d}",
        number,
        ticket.island,
        parent.generation + 1,
        "cpp",
        _source(number),
        (parent.id,),
        "tune",
    )
    with store.transaction():
        store.add_candidate(RUN, candidate)
        store.close_attempt(RUN, number, "candidate")
    _tell(store, population, candidate, say)


def _tell(store: Store, population: Population, candidate: Candidate, say: Callable[[str], None]) -> None:
    evaluation = _evaluation(candidate)
    key = (candidate.source_sha256, PROBLEM_SHA256, "cpu", "fp32", evaluation.protocol)
    store.add_evaluation(RUN, candidate.id, evaluation, key)
    say(f"told {candidate.id}")
    population.tell(Evaluated(candidate, evaluation))
    say(f"live {population.told} {population.digest()}")


def _replay(history: list[Evaluated]) -> Population:
    population = Population(PopulationConfig(islands=ISLANDS), RUN, 1)
    for entry in history:
        population.tell(entry)
    return population


def _look(db: Path, count: int) -> tuple[list[str], int, int, str]:
    """Who was told, how many twice, findings of the full check, and the digest of a replay of the first `count`."""
    with open_store(db, read_only=True) as store:
        history = store.history(RUN)
        told = [entry.candidate.id for entry in history]
        twice = len(told) - len(set(told)) + abs(store.counts(RUN).told - len(told))
        return told, twice, len(store.check()), _replay(history[:count]).digest()


def _run() -> Run:
    config = {"population": {"islands": ISLANDS}}
    return Run(RUN, "kill", "toy", PROBLEM_SHA256, PROBLEM, "cpp", "cpu", "fp32", config, 1, {}, "0" * 40, utc_now())


def _source(number: int) -> str:
    return f"constexpr int TILE = {number};\n" * 20


def _evaluation(candidate: Candidate) -> Evaluation:
    """The same for the same candidate, whoever measures it."""
    noise = random.Random(candidate.number)
    common = ("toy", candidate.backend, candidate.source_sha256)
    if noise.random() < 0.3:
        return Evaluation(Verdict.WRONG_RESULT, "wrong in 3 places", *common, max_abs_err=1.0, log="tile\n" * 100)
    speedup = 1 + noise.random()
    return Evaluation(
        Verdict.CORRECT,
        "all right",
        *common,
        kernel_ms=1 / speedup,
        kernel_ms_ci=(0.99 / speedup, 1.01 / speedup),
        reference_ms=1.0,
        speedup=speedup,
        speedup_ci=(0.99 * speedup, 1.01 * speedup),
        error_ratio=1.0,
        peak_mem_bytes=1000,
    )
