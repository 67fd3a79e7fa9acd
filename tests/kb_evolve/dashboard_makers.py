"""A small database with everything a dashboard shows, hostile texts included, and a real server on it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fitness.evaluation import PROTOCOL, Evaluation, Verdict
from islands.candidate import Candidate
from islands.run import Run
from islands.store import Store, open_store

ROOT = Path(__file__).resolve().parents[2]

HOSTILE = (
    "</pre></title><script>document.title='owned';alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }} "
    "\x1b[31mred\x1b]0;title\x07 \u202egnp.exe\u202c \u2066x\u2069 \u200b <svg onload=alert(3)> \" ' onclick=alert(4)"
)
PROBLEM = "import torch\n\n\nclass Model:\n    pass\n"
SOURCE = '''import torch
# {note}
SOURCE = r"""
#include <cstdint>
extern "C" void scale(const float* x, float* out, int64_t count) {{
    for (int64_t i = 0; i < count; ++i) out[i] = x[i] * {number};  // variant {number}
}}
"""
'''

SEARCH = """
import sys
sys.path.insert(0, {tests!r})
from toy_makers import toy
from fitness.replay import Landscape, Replay
from kb_evolve.search import Search
Search(toy(), db=sys.argv[1], run="live", evaluations=int(sys.argv[2]), workbench=Replay(Landscape())).run()
"""


def a_run(run_id: str = "abcdefgh", name: str = "demo", **fields: object) -> Run:
    """A run of a little problem."""
    values = {
        "id": run_id,
        "name": name,
        "problem_id": "scale",
        "problem_sha256": hashlib.sha256(PROBLEM.encode()).hexdigest(),
        "problem_source": PROBLEM,
        "backend": "cpp",
        "device": "cpu",
        "precision": "fp32",
        "config": {},
        "seed": 3,
        "budget": {"evaluations": 60},
        "git_commit": "",
        "started_at": "2026-03-01T09:00:00.000+00:00",
    }
    return Run(**(values | fields))  # type: ignore[arg-type]


def tell(
    store: Store,
    run: Run,
    number: int,
    speedup: float | None,
    parents: tuple[int, ...] = (),
    island: int = 0,
    mutator: str = "tune",
    note: str = "fine",
    verdict: Verdict = Verdict.WRONG_RESULT,
    log: str = "",
) -> str:
    """Records a candidate and its evaluation, correct where there is a speedup; its id."""
    source = SOURCE.format(number=number, note=note)
    ids = tuple(f"{run.id}-{parent:06d}" for parent in parents)
    candidate = Candidate(
        f"{run.id}-{number:06d}", number, island, len(ids), "cpp", source, ids, mutator, f"rationale {note}"
    )
    fields = {
        "problem": run.problem_id,
        "backend": "cpp",
        "source_sha256": candidate.source_sha256,
        "device_name": "Some CPU",
        "sandbox": "S2",
        "log": log,
    }
    if speedup is not None:
        verdict = Verdict.CORRECT
        fields |= {
            "kernel_ms": 3.0 / speedup,
            "kernel_ms_ci": (2.97 / speedup, 3.03 / speedup),
            "reference_ms": 3.0,
            "speedup": speedup,
            "speedup_ci": (0.99 * speedup, 1.01 * speedup),
            "peak_mem_bytes": 1 << 20,
            "features": {"threads": 2},
        }
    evaluation = Evaluation(verdict, f"reason {note}", **fields)
    store.open_attempt(run.id, number, island, mutator, ids)
    store.add_candidate(run.id, candidate)
    store.close_attempt(run.id, number, "candidate", usage={"cost_usd": 0.01})
    key = (candidate.source_sha256, run.problem_sha256, "cpu", "fp32", PROTOCOL)
    store.add_evaluation(run.id, candidate.id, evaluation, key)
    return candidate.id


def fill(path: Path, count: int = 60) -> Run:
    """A run of `count` candidates on two islands: every fifth one is wrong, and number 4 is full of traps."""
    with open_store(path) as store, store.transaction():
        run = a_run()
        store.create_run(run)
        for number in range(count):
            wrong = number % 5 == 4
            parents = (max(0, number - 2),) if number > 1 else ()
            trap = number == 4
            tell(
                store,
                run,
                number,
                None if wrong else 1.0 + number / 20,
                parents,
                number % 2,
                "seed" if number < 2 else ("tune", "crossover")[number % 2],
                HOSTILE if trap else f"step {number}",
                log=HOSTILE if trap else "",
            )
        _converse(store, run, 4)
        store.open_attempt(run.id, count, 0, "crossover")
        store.close_attempt(run.id, count, "refused", reason=f"nothing left {HOSTILE}")
        store.create_run(other := a_run("bcdefghi", "other <b>run</b>"))
        tell(store, other, 0, 1.5)
    return run


def _converse(store: Store, run: Run, number: int) -> None:
    messages = [{"role": "system", "content": "You write kernels."}, {"role": "user", "content": f"Ask {HOSTILE}"}]
    request = {
        "number": number,
        "turn": 0,
        "operator": "diff",
        "model": "openai/some-model",
        "island": 0,
        "parent_ids": (),
        "messages": messages,
        "prompt_version": "1",
        "parameters": {},
        "worst_usd": 0.5,
    }
    store.open_request(run.id, request)
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "cost_usd": 0.01}
    reply = {"text": f"Reply {HOSTILE}", "reasoning": "", "finish_reason": "stop", "usage": usage}
    store.add_reply(run.id, number, 0, reply)


@contextmanager
def served(path: Path, **access: object) -> Iterator[str]:
    """The address of a dashboard on a free port of loopback, in a thread of this process."""
    import uvicorn

    from kb_evolve.dashboard.app import create_app
    from kb_evolve.dashboard.guard import Access
    from kb_evolve.dashboard.server import listening
    from kb_evolve.dashboard.watch import Watches

    with open_store(path, read_only=True) as store, listening("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        app = create_app(Watches(store), Access(port=port, **access))  # type: ignore[arg-type]
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(10)


def start_search(path: Path, evaluations: int) -> subprocess.Popen[str]:
    """A child that searches the toy problem on a scripted landscape."""
    script = SEARCH.format(tests=str(Path(__file__).parent))
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path), str(evaluations)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
    )
