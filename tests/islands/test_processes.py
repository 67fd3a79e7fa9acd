"""Several processes on one file, and killed ones: nothing acknowledged is lost, nothing counts twice."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from random import Random

from islands.population import Population
from islands.store import open_store


def test_four_processes_that_make_the_same_file_all_succeed(path, fork, children):
    started = [fork(children.open_only, path) for _ in range(4)]
    assert [child.end() for child in started] == ["findings 0\n"] * 4


def test_processes_that_append_at_once_lose_nothing_and_share_no_position(closed, make, fork, children):
    with open_store(closed) as store:
        store.create_run(make.run("run00001", "other"))
    work = [(0, 60, "demo"), (60, 120, "demo"), (0, 60, "other")]
    started = [fork(children.append, closed, *one) for one in work]
    for child in started:
        child.end()
        assert child.status == 0
    with open_store(closed) as store:
        assert sorted(one.candidate.number for one in store.history("run00000")) == list(range(120))
        assert sorted(one.candidate.number for one in store.history("run00001")) == list(range(60))
        with sqlite3.connect(closed) as raw:
            positions = raw.execute("SELECT position FROM tellings WHERE run_id = 'run00000' ORDER BY position")
            assert [position for (position,) in positions] == list(range(120))
            assert raw.execute("SELECT count(*) FROM evaluations").fetchone() == (50,)
        assert store.check() == []


def test_twenty_kills_at_random_moments_lose_nothing_that_was_acknowledged(path, make, fork, children):
    with open_store(path) as store:
        store.create_run(make.run())
    rng = Random(20)
    acknowledged: dict[str, list[int]] = defaultdict(list)
    for _ in range(20):
        child = fork(children.search, path)
        lines = [child.said.readline()]
        time.sleep(rng.uniform(0, 0.06))
        child.kill()
        lines += child.end().splitlines(keepends=True)
        for kind, number in (line.split() for line in lines if line.endswith("\n")):
            acknowledged[kind].append(int(number))
    with open_store(path) as store:
        assert store.check() == []
        history = store.history("run00000")
        told = [one.candidate.number for one in history]
        assert len(acknowledged["told"]) > 40
        assert [number for number in told if number in set(acknowledged["told"])] == acknowledged["told"]
        assert len(set(told)) == len(told) == store.counts("run00000").told
        assert {one.number for one in store.attempts("run00000")} >= set(acknowledged["attempt"])
        recorded = {*told, *(one.number for one in store.pending("run00000"))}
        assert recorded >= set(acknowledged["candidate"])
        closed = {one.number for one in store.attempts("run00000") if one.outcome == "candidate"}
        assert closed == recorded
        lost = sum(one.outcome == "lost" for one in store.attempts("run00000"))
        assert len(store.attempts("run00000")) <= len(recorded) + lost + 1


def test_a_population_rebuilt_in_another_process_equals_the_live_one(store, make, path, children):
    population = Population(children.mixed(), "run00000", 7)
    rng = Random(3)
    for seed in population.seed_candidates("x = 0\n", "cpp"):
        first = make.Evaluated(seed, make.evaluation(seed, 1.0))
        make.record(store, make.run(), first)
        population.tell(first)
    for number in range(4, 80):
        ticket = population.ask(number)
        parents = (ticket.parent.candidate.id, *(one.candidate.id for one in ticket.inspirations[:1]))
        speedup = None if rng.random() < 0.3 else rng.uniform(1, 5)
        new = make.evaluated(number, speedup, source=f"x = {number % 60}\n", parent_ids=parents)
        make.record(store, make.run(), new)
        population.tell(new)
    assert {event.is_reset for event in population.migrations} == {True, False}
    for hash_seed in ("1", "2"):
        here = Path(__file__).parent
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(here.parent.parent)}
        command = [sys.executable, str(here / "islands_children.py"), str(path)]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert said.strip() == children.account(population)
