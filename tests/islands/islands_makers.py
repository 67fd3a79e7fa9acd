"""Small real records for the tests of islands/, and for the child processes that they start."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.run import Run
from islands.store import Store

PROBLEM = "class Model: ...\n"


def run(run_id: str = "run00000", name: str = "demo", **changes: Any) -> Run:
    values: dict[str, Any] = {
        "problem_id": "rmsnorm",
        "problem_sha256": hashlib.sha256(PROBLEM.encode()).hexdigest(),
        "problem_source": PROBLEM,
        "backend": "cpp",
        "device": "cpu",
        "precision": "fp32",
        "config": {"population": {"islands": 4, "axes": ["size"]}},
        "seed": 7,
        "budget": {"evaluations": 60},
        "git_commit": "0" * 40,
        "started_at": "2026-01-01T00:00:00.000+00:00",
    }
    return Run(run_id, name, **values | changes)


def candidate(number: int, run_id: str = "run00000", **changes: Any) -> Candidate:
    values: dict[str, Any] = {
        "island": number % 4,
        "generation": 0 if number < 4 else 1,
        "backend": "cpp",
        "source": f"x = {number}\n",
    }
    return Candidate(f"{run_id}-{number:06d}", number, **values | changes)


def evaluation(of: Candidate, speedup: float | None, spread: float = 0.01, **changes: Any) -> Evaluation:
    """A correct one with the 95% interval `speedup` times 1 +- spread; a wrong result for no speedup."""
    common: dict[str, Any] = {"problem": "rmsnorm", "backend": of.backend, "source_sha256": of.source_sha256}
    if speedup is None:
        failed: dict[str, Any] = {
            "verdict": Verdict.WRONG_RESULT,
            "reason": "wrong in 3 places",
            "max_abs_err": math.inf,
        }
        return Evaluation(**failed | common | changes)
    times: dict[str, Any] = {
        "kernel_ms": 1.0 / speedup,
        "kernel_ms_ci": (0.9 / speedup, 1.1 / speedup),
        "reference_ms": 1.0,
        "speedup": speedup,
        "speedup_ci": (speedup * (1 - spread), speedup * (1 + spread)),
        "error_ratio": 1.0,
        "peak_mem_bytes": 1000,
    }
    return Evaluation(**common | {"verdict": Verdict.CORRECT, "reason": "all right"} | times | changes)


def evaluated(number: int, speedup: float | None, spread: float = 0.01, **changes: Any) -> Evaluated:
    """`changes` go to the evaluation where it has a field of that name, else to the candidate."""
    own = {name: value for name, value in changes.items() if name in Evaluation.__slots__ and name != "source"}
    new = candidate(number, **{name: value for name, value in changes.items() if name not in own})
    return Evaluated(new, evaluation(new, speedup, spread, **own))


def key(of: Candidate, of_run: Run | None = None) -> tuple[str, ...]:
    return (of.source_sha256, (of_run or run()).problem_sha256, "cpu", "fp32", "1")


def record(store: Store, of_run: Run, new: Evaluated) -> None:
    """An attempt, its candidate and its evaluation, each in its own transaction."""
    made = new.candidate
    store.open_attempt(of_run.id, made.number, made.island, "tune", made.parent_ids)
    store.add_candidate(of_run.id, made)
    store.close_attempt(of_run.id, made.number, "candidate")
    store.add_evaluation(of_run.id, made.id, new.evaluation, key(made, of_run))


def request(number: int = 4, turn: int = 0, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "number": number,
        "turn": turn,
        "operator": "diff",
        "model": "some/model",
        "island": number % 4,
        "parent_ids": (f"run00000-{number % 4:06d}",),
        "messages": ({"role": "user", "content": f"make {number} faster"},),
        "prompt_version": "ab" * 32,
        "parameters": {"max_tokens": 100},
        "worst_usd": 0.02,
    }
    return values | changes


def reply(text: str = "done", cost_usd: float = 0.01) -> dict[str, Any]:
    usage = {"model": "some/model", "prompt_tokens": 10, "completion_tokens": 5, "cost_usd": cost_usd}
    return {"text": text, "reasoning": "", "finish_reason": "stop", "usage": usage}


def converse(store: Store, run_id: str, number: int) -> None:
    """Opens an attempt with one answered and one failed request."""
    if number not in {attempt.number for attempt in store.attempts(run_id)}:
        store.open_attempt(run_id, number, number % 4, "diff")
    store.open_request(run_id, request(number))
    store.add_reply(run_id, number, 0, reply())
    store.open_request(run_id, request(number, 1))
    usage = {"model": "some/model", "prompt_tokens": 7, "completion_tokens": 0, "cost_usd": 0.02}
    store.add_model_failure(run_id, number, 1, kind="timeout", reason="no answer within 3 s", usage=usage)
