"""Runs, candidates and records for the tests of the report."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.run import Attempt, Event, Run
from islands.turns import Spent
from kb_evolve.report.record import Record, record_of

START = "2026-03-01T09:00:00+00:00"
HOSTILE = (
    "</pre></style><script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>"
    "\"'{{ 7 * 7 }} \x1b[2J\x1b]0;owned\x07 \u202egnp.exe\u2066 \u200b $\\frac{ $ \x00 & <!-- "
)


def at(seconds: float) -> str:
    """That many seconds (below an hour) after START."""
    return f"2026-03-01T09:{int(seconds // 60):02d}:{seconds % 60:06.3f}+00:00"


def a_run(**fields: Any) -> Run:
    values = {
        "id": "run",
        "name": "softmax-demo",
        "problem_id": "softmax",
        "problem_sha256": "f" * 64,
        "problem_source": "class Model: ...",
        "backend": "cpp",
        "device": "cpu",
        "precision": "fp32",
        "config": {"run": {"seed": 1}, "population": {"islands": 2, "migration_every": 0}},
        "seed": 1,
        "budget": {"evaluations": 3},
        "git_commit": "5495106",
        "started_at": START,
    }
    return Run(**(values | fields))


def evaluated(
    number: int,
    speedup: float | None = None,
    *,
    parents: tuple[int, ...] = (),
    island: int = 0,
    mutator: str = "tune",
    text: str = "fine",
    source: str = "",
    spread: float = 0.02,
    **fields: Any,
) -> Evaluated:
    """Candidate `number`, correct where a speedup is given, its interval `spread` to both sides; reference 3 ms."""
    source = source or f"int version = {number};\n"
    times: dict[str, Any] = {}
    if speedup is not None:
        low, high = 1 - spread, 1 + spread
        times = {"kernel_ms": 3.0 / speedup, "reference_ms": 3.0, "speedup": speedup}
        times |= {"kernel_ms_ci": (low * 3.0 / speedup, high * 3.0 / speedup)}
        times |= {"speedup_ci": (low * speedup, high * speedup)}
        times |= {"peak_mem_bytes": 1 << 20, "error_ratio": 1.5, "max_abs_err": 1e-7}
    ids = tuple(f"run-{parent:06d}" for parent in parents)
    candidate = Candidate(
        f"run-{number:06d}", number, island, min(1, len(parents)), "cpp", source, ids, mutator, f"rationale {text}"
    )
    values = {
        "verdict": Verdict.CORRECT if speedup else Verdict.COMPILE_ERROR,
        "reason": f"reason {text}",
        "problem": "softmax",
        "backend": "cpp",
        "source_sha256": hashlib.sha256(source.encode()).hexdigest(),
        "device_name": "Some CPU",
        "sandbox": "S2",
        "compile_s": 0.5,
        "evaluate_s": 1.5,
    }
    return Evaluated(candidate, Evaluation(**(values | times | fields)))


def attempt(number: int, outcome: str | None = "candidate", *, mutator: str = "tune", **fields: Any) -> Attempt:
    """An ask of island 0 that was opened at its number of seconds and closed half a second later."""
    closed_at = at(number + 0.5) if outcome else None
    return Attempt("run", number, 0, mutator, (), at(number), outcome=outcome, closed_at=closed_at, **fields)


def event(kind: str, seconds: float, **fields: Any) -> Event:
    return Event("run", kind, fields, at(seconds))


def spent(number: int, seconds: float, cost_usd: float, model: str = "some/model") -> Spent:
    return Spent(model, "diff", 0, number, at(seconds), {"model": model, "cost_usd": cost_usd})


def a_record(history: list[Evaluated], run: Run | None = None, every_s: float = 2.0, **fields: Any) -> Record:
    """The record of a history that was told one every `every_s` seconds."""
    told_at = [at(every_s * (index + 1)) for index in range(len(history))]
    return record_of(run or a_run(), history, told_at=fields.pop("told_at", told_at), **fields)


def hostile_record(history: Sequence[Evaluated]) -> Record:
    """The record with a best and a failed candidate more, and with traps wherever others' text can stand.

    All are of the same hostile device and judge: only then can the best one be the elite.
    """
    judged = {"device_name": HOSTILE, "judge_sha256": HOSTILE}
    history = [replace(each, evaluation=replace(each.evaluation, **judged)) for each in history]
    best = evaluated(
        9,
        3.0,
        parents=(3,),
        text=HOSTILE,
        source=f"# {HOSTILE}\n",
        baseline=HOSTILE,
        labels=(HOSTILE,),
        sandbox=HOSTILE,
        **judged,
    )
    failed = evaluated(10, parents=(3,), text=HOSTILE, mutator=HOSTILE, log=HOSTILE)
    usage = {"model": HOSTILE, "cost_usd": HOSTILE}
    asked = Attempt("run", 11, 0, HOSTILE, (), START, outcome="error", reason=HOSTILE, usage=usage, closed_at=START)
    run = a_run(
        name=HOSTILE,
        problem_id=HOSTILE,
        problem_source=HOSTILE,
        git_commit=HOSTILE,
        config={HOSTILE: HOSTILE, "mutators": {"policy": HOSTILE}, "findings": [HOSTILE], "costs": HOSTILE},
    )
    return a_record([*history, best, failed], run, attempts=[asked])
