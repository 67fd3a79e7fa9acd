"""Killed at random moments, a run loses nothing told, counts nothing twice and ends as if never killed."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from islands.bouts import replay
from islands.population import Population, PopulationConfig
from islands.store import open_store

EVALUATIONS = 60
LANDSCAPE = {"build_s": 0.01, "measure_s": 0.01, "noise": 0.05}
Start = Callable[..., "subprocess.Popen[str]"]


def told_ids(db: Path) -> list[str]:
    if not db.exists():
        return []
    with open_store(db) as store:
        run = store.find_run("toy")
        return [entry.candidate.id for entry in store.history(run.id)] if run else []


TOLD = "SELECT count(*) FROM tellings"
PROPOSED = "SELECT count(*) FROM outcomes WHERE outcome = 'candidate'"


def wait_until(query: str, count: int, db: Path, child: subprocess.Popen[str]) -> None:
    """Until the child has written so many rows, as another reader of the file sees it."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s and child.poll() is None:
        try:
            with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as connection:
                if connection.execute(query).fetchone()[0] >= count:
                    return
        except sqlite3.Error:
            pass
        time.sleep(0.01)


def test_kill_9_at_random_moments_loses_nothing_told_and_counts_nothing_twice(
    tmp_path: Path, start_search: Start
) -> None:
    db = tmp_path / "kb.db"
    rng = random.Random(7)
    acknowledged: list[str] = []
    for kill in range(8):
        child = start_search(db, evaluations=EVALUATIONS, islands=2, landscape=LANDSCAPE)
        wait_until(TOLD, len(acknowledged) + rng.randrange(0, 7), db, child)
        time.sleep(rng.random() * 0.05)
        child.kill()
        child.communicate()
        told = told_ids(db)
        assert told[: len(acknowledged)] == acknowledged, f"kill {kill} lost or reordered what was told"
        acknowledged = told
    child = start_search(db, evaluations=EVALUATIONS, islands=2, landscape=LANDSCAPE)
    output, errors = child.communicate(timeout=120)
    assert output.strip() == "budget", errors
    with open_store(db) as store:
        run = store.find_run("toy")
        assert run is not None
        history, events = store.history(run.id), store.events(run.id)
        ids = [entry.candidate.id for entry in history]
        assert ids[: len(acknowledged)] == acknowledged
        assert len(ids) == len(set(ids))
        assert store.counts(run.id).measured == EVALUATIONS
        assert store.pending(run.id) == []
        assert all(attempt.outcome for attempt in store.attempts(run.id))
        final = [event.fields for event in store.events(run.id) if event.kind == "stopped"][-1]
        assert store.check() == []
    population = Population(PopulationConfig(islands=2), run.id, run.seed)
    replay(population, history, events)
    assert population.digest() == final["digest"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_ends_cleanly_and_the_run_goes_on_later(
    tmp_path: Path, start_search: Start, number: signal.Signals
) -> None:
    db = tmp_path / "kb.db"
    child = start_search(db, evaluations=EVALUATIONS, islands=2, landscape=LANDSCAPE)
    wait_until(TOLD, 5, db, child)
    child.send_signal(number)
    output, errors = child.communicate(timeout=60)
    assert (child.returncode, output.strip()) == (0, "interrupted"), errors
    with open_store(db) as store:
        run = store.find_run("toy")
        assert run is not None
        assert all(attempt.outcome for attempt in store.attempts(run.id))
        assert store.events(run.id)[-1].kind == "stopped"
        told = len(store.history(run.id))
    assert 5 <= told < EVALUATIONS
    child = start_search(db, evaluations=told + 5, islands=2, landscape=LANDSCAPE)
    output, errors = child.communicate(timeout=60)
    assert output.strip() == "budget", errors


def test_the_measurement_in_flight_at_a_signal_is_told(tmp_path: Path, start_search: Start) -> None:
    db = tmp_path / "kb.db"
    child = start_search(db, evaluations=EVALUATIONS, islands=1, landscape={"measure_s": 1.0})
    wait_until(PROPOSED, 1, db, child)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=60)
    assert output.strip() == "interrupted", errors
    assert len(told_ids(db)) == 2


def test_a_second_signal_ends_at_once_with_a_database_that_can_go_on(tmp_path: Path, start_search: Start) -> None:
    db = tmp_path / "kb.db"
    child = start_search(db, evaluations=EVALUATIONS, islands=2, landscape={"measure_s": 4.0})
    deadline_s = time.monotonic() + 30
    while not db.exists() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    time.sleep(0.5)
    started_s = time.monotonic()
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGINT
    assert time.monotonic() - started_s < 3.5, "it waited for the measurement"
    with open_store(db) as store:
        run = store.find_run("toy")
        assert run is not None and store.pending(run.id)
