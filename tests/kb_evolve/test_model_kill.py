"""A search with a model, killed at many moments and taken up again: what was paid and recorded is not paid again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from model_writer import KEY, KEY_NAME, Writer, settings
from openai_server import COMPLETION_PICO, PROMPT_PICO, Act, OpenAIServer

from islands.store import open_store
from islands.turns import Turn

ROOT = Path(__file__).resolve().parents[2]

STARTER = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from toy_makers import toy
from model_writer import FAILURES
from fitness.replay import Landscape, Replay
from kb_evolve.search import Search
from mutators.wire import load_litellm

load_litellm()
for line in sys.stdin:
    pid = os.fork()
    if pid:
        print("pid", pid, flush=True)
        print("end", os.waitpid(pid, 0)[1], flush=True)
        continue
    landscape = Landscape(build_s=0.01, measure_s=0.01, failures=FAILURES)
    outcome = Search(toy(), run="toy", workbench=Replay(landscape), **json.loads(line)).run()
    os._exit({"budget": 0}.get(outcome.stop, 1))
"""
"""Starts one search per line of its input, each in a process of its own, without importing litellm every time."""


class Searches:
    """Processes that search, started by one that has imported everything."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", KEY_NAME: KEY}
        command = [sys.executable, "-c", STARTER, str(Path(__file__).parent)]
        self.starter = subprocess.Popen(
            command, env=environment, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def start(self, **options: Any) -> int:
        """The pid of a new search."""
        assert self.starter.stdin is not None
        self.starter.stdin.write(json.dumps(options) + "\n")
        return self._read("pid")

    def end(self) -> int:
        """How the last one ended, as os.waitpid says."""
        return self._read("end")

    def _read(self, expected: str) -> int:
        assert self.starter.stdout is not None
        word, number = self.starter.stdout.readline().split()
        assert word == expected
        return int(number)


@pytest.fixture(scope="module")
def searches() -> Iterator[Searches]:
    started = Searches()
    yield started
    started.starter.communicate(timeout=30)


def replied(db: Path) -> dict[tuple[int, int], str]:
    """Text of every recorded reply, by ticket and turn."""
    if not db.exists():
        return {}
    with open_store(db, read_only=True) as store:
        runs = store.runs()
        turns = store.turns(runs[0].id) if runs else []
        return {(turn.number, turn.turn): turn.text for turn in turns if turn.text is not None}


def wait_for(server: OpenAIServer, requests: int) -> None:
    """Until the server was asked so often, 20 s at most."""
    deadline_s = time.monotonic() + 20
    while server.begun < requests and time.monotonic() < deadline_s:
        time.sleep(0.002)


def told(db: Path) -> list[int]:
    with open_store(db, read_only=True) as store:
        return [entry.candidate.number for entry in store.history(store.runs()[0].id)]


def pico(usd: float) -> int:
    return round(Decimal(str(usd)) * 10**12)


SHARES = {"right": 4, "broken": 1, "mended": 4, "prose": 1, "repeated": 1}
ATTEMPTS = 60


def test_a_recorded_reply_is_never_paid_twice_and_nothing_told_twice(tmp_path: Path, searches: Searches) -> None:
    db, random = tmp_path / "kb.db", Random(5)
    writer = Writer(db, SHARES, delay_s=lambda number, turn: 0.05 + 0.1 * turn)
    kept: dict[tuple[int, int], str] = {}
    asked_when_kept: Counter[tuple[int, int]] = Counter()
    acknowledged: list[int] = []
    with OpenAIServer(writer) as server:
        search = {"db": str(db), "attempts": ATTEMPTS, "islands": 2, "thinkers": 3, "mutators": ("diff", "rewrite")}
        options = {**search, **settings(server), "max_usd": 9.0}
        for kill in range(6):
            wanted, pid = server.begun + random.randint(1, 12), searches.start(**options)
            wait_for(server, wanted)
            time.sleep(random.random() * 0.1)
            os.kill(pid, signal.SIGKILL)
            assert searches.end() == signal.SIGKILL, f"kill {kill} came too late: raise ATTEMPTS"
            now, asked = replied(db), Counter((one.number, one.turn) for one in writer.asked)
            assert {key: now.get(key) for key in kept} == kept, f"kill {kill} lost replies"
            assert all(asked[key] == count for key, count in asked_when_kept.items()), f"before kill {kill}, paid twice"
            kept, asked_when_kept = now, Counter({key: asked[key] for key in now})
            assert told(db)[: len(acknowledged)] == acknowledged
            acknowledged = told(db)
        searches.start(**options)
        assert searches.end() == 0
        asked = Counter((one.number, one.turn) for one in writer.asked)
        assert all(asked[key] == count for key, count in asked_when_kept.items())
        assert len(kept) > 10 and len(acknowledged) > 5, "there was something to lose"
    assert_settled(db, server, writer)


def assert_settled(db: Path, server: OpenAIServer, writer: Writer) -> None:
    """Every attempt closed, nothing told twice, and every request that the server served counted."""
    with open_store(db, read_only=True) as store:
        run_id = store.runs()[0].id
        attempts, numbers = store.attempts(run_id), told(db)
        assert [attempt.number for attempt in attempts] == list(range(2, 2 + ATTEMPTS))
        assert all(attempt.outcome for attempt in attempts) and not store.unsettled(run_id) and not store.check()
        assert len(numbers) == len(set(numbers)) and not store.pending(run_id)
        lost = {attempt.number for attempt in attempts if attempt.outcome == "lost"}
        turns = {(turn.number, turn.turn): turn for turn in store.turns(run_id)}
        spent = [pico(one.usage["cost_usd"]) for one in store.spent(run_id)]
    scripted = {number for number in range(2, 2 + ATTEMPTS) if number not in lost}
    outcomes = Counter(attempt.outcome for attempt in attempts if attempt.number in scripted)
    assert outcomes["refused"] == sum(writer.kind(number) == "prose" for number in scripted)
    assert set(Counter((one.number, one.turn) for one in writer.asked).values()) == {1}, "nothing is asked twice"
    assert lost and 9e12 > sum(spent) >= server.tally_pico
    charged = {(writer.number(one.body["messages"][1]["content"]), len(one.body["messages"]) // 2 - 1): one.pico
               for one in server.served}  # fmt: skip
    owed = [charged[key] if turn.text is not None else worst_pico(turn) for key, turn in turns.items()]
    assert sum(spent) == sum(owed), "replies cost what the server says, lost requests what they may have cost"


def worst_pico(turn: Turn) -> int:
    """Every byte a token, and what a chat template may add."""
    prompt = sum(len(message["content"].encode()) + 16 for message in turn.messages) + 256
    return prompt * PROMPT_PICO + turn.parameters["max_tokens"] * COMPLETION_PICO


def test_a_killed_run_owes_all_tries_of_a_request_that_it_had_in_flight(tmp_path: Path, searches: Searches) -> None:
    """The first try hangs and may have been charged; the process dies during the second."""
    db = tmp_path / "kb.db"
    writer = Writer(db, SHARES, fault=lambda n: Act(manner="hang"))
    with OpenAIServer(writer) as server:
        options = {"db": str(db), "attempts": 1, "islands": 1, "mutators": ("diff",), "max_usd": 9.0}
        pid = searches.start(**options, **settings(server, timeout_s=1.0))
        wait_for(server, 2)
        os.kill(pid, signal.SIGKILL)
        assert searches.end() == signal.SIGKILL and server.begun == 2
        searches.start(**options, **settings(server))
        assert searches.end() == 0
    with open_store(db, read_only=True) as store:
        (spent,) = store.spent(store.runs()[0].id)
    assert pico(spent.usage["cost_usd"]) == sum(one.worst_pico for one in server.served) > 0
