"""Programs, tickets and a builder for the tests of prompts."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated, Ticket
from mutators.brief import Brief
from mutators.fence import make_fence
from mutators.prompt import EDITING, WRITING, PromptBuilder

SECRET = b"a secret of thirty-two bytes ...."
OPERATORS = (*EDITING, *WRITING)
ROOT = Path(__file__).parents[2]
SEED = (ROOT / "problems/bundled/seeds/softmax.py").read_text()
BRIEF = Brief(
    problem_id="level1/softmax",
    problem_source="class Model(nn.Module):\n    pass\n",
    backend="cpp",
    device_name="a processor",
    facts={"bytes_per_s": 21e9, "cores": 8.0, "vector_bits": 512.0, "l2_cache_bytes": 2097152.0, "note": "quiet"},
    baselines={"eager": 4.2, "compile": 3.3},
    floor_ms=1.6,
    floor_why="33.6 MB to move",
    shapes="x (4096, 1024) fp32",
)


def program(number: int, kernel_ms: float | None = 2.0, **changes) -> Evaluated:
    """A candidate with its evaluation; `changes` are fields of either."""
    fields = {field.name for field in dataclasses.fields(Candidate)} & changes.keys()
    mine = {key: changes.pop(key) for key in fields}
    source = mine.pop("source", f"{SEED}# {number}\n" + f"x{number} = {number}\n")
    candidate = Candidate(f"run-{number:06d}", number, 0, 1, mine.pop("backend", "cpp"), source, **mine)
    times = {}
    if kernel_ms is not None:
        ci = (0.98 * kernel_ms, 1.02 * kernel_ms)
        speedup = 4.2 / kernel_ms
        times = {"kernel_ms": kernel_ms, "kernel_ms_ci": ci, "reference_ms": 4.2, "speedup": speedup,
                 "speedup_ci": (0.98 * speedup, 1.02 * speedup)}  # fmt: skip
    verdict = changes.pop("verdict", Verdict.CORRECT if times else Verdict.WRONG_RESULT)
    reason = changes.pop("reason", "correct on 21 draws" if times else f"element {number} is wrong")
    evaluation = Evaluation(verdict, reason, "p", candidate.backend, candidate.source_sha256, **times, **changes)
    return Evaluated(candidate, evaluation)


def ticket_of(parent: Evaluated, inspirations=(), lineage=(), number=7) -> Ticket:
    return Ticket(number, 0, "1:7", parent, tuple(inspirations), tuple(lineage))


PARENT = program(1, 2.0, features={"threads": 1, "vector_bits": 128, "achieved_bytes_per_s": 4e9})
ELITES = tuple(program(10 + index, 2.1 + index / 10) for index in range(4))
FAILED = tuple(
    program(20 + index, None, reason=f"{'abcdef'[index]} is wrong", rationale=f"try {'uvwxyz'[index]}")
    for index in range(6)
)
TIMED = tuple(
    program(30 + index, 1.5 + index, parent_ids=(PARENT.candidate.id,), rationale=f"use {index} lanes")
    for index in range(6)
)
FOREIGN = program(40, 0.5, backend="cuda", source="# written in CUDA\n")
FULL = ticket_of(PARENT, (*ELITES, FOREIGN), (PARENT, *FAILED, *TIMED))


def builder(budget: int = 100_000, **changes) -> PromptBuilder:
    return PromptBuilder(dataclasses.replace(BRIEF, **changes), SECRET, budget)


def texts(prompt) -> str:
    return "\n".join(message.content for message in prompt.messages)


def ours_and_data(text: str, number: int = 7) -> tuple[str, str]:
    """What stands outside and inside the fences, read with the marks that only the builder knows."""
    data = []
    for mark in (make_fence(SECRET, "run").mark, make_fence(SECRET, number).mark):
        pattern = rf'<data-{mark} kind="([^"]*)"[^>]*>\n(.*?)\n</data-{mark}>'
        data += [f"{kind}\n{body}" for kind, body in re.findall(pattern, text, re.DOTALL)]
        text = re.sub(pattern, "", text, flags=re.DOTALL)
        assert f"data-{mark}" not in text
    return text, "\n".join(data)
