"""Duels in a search: on record before they are fought, gone on with after a kill, and one answer to who is best."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fitness.replay import Landscape, Replay, bowl
from islands.bouts import BOUT, DETHRONED, FOUGHT_OUT, OPENED, replay
from islands.population import Population, PopulationConfig
from islands.store import open_store
from kb_evolve.report import series
from kb_evolve.search import Search
from kb_evolve.standing import best_of, is_elite, standing, top
from problems.problem import Problem

Start = Callable[..., "subprocess.Popen[str]"]


def count(db: Path, kind: str) -> int:
    try:
        with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT count(*) FROM events WHERE kind = ?", [kind]).fetchone()[0]
    except sqlite3.Error:
        return 0


def test_killed_between_a_first_measurement_and_its_duel_a_run_goes_on_with_the_duel(
    tmp_path: Path, start_search: Start
) -> None:
    db = tmp_path / "kb.db"
    for kill in range(1, 4):
        child = start_search(db, evaluations=16, islands=1, landscape={"measure_s": 0.1, "noise": 0.2})
        deadline_s = time.monotonic() + 60
        while count(db, OPENED) < kill and time.monotonic() < deadline_s and child.poll() is None:
            time.sleep(0.01)
        child.kill()
        child.communicate()
    child = start_search(db, evaluations=16, islands=1, landscape={"noise": 0.2})
    output, errors = child.communicate(timeout=60)
    assert output.strip() == "budget", errors
    with open_store(db, read_only=True) as store:
        (run,) = store.runs()
        history, events = store.history(run.id), store.events(run.id)
        assert store.counts(run.id).measured == 16
    by_kind = {
        kind: [event.fields["candidate"] for event in events if event.kind == kind] for kind in (OPENED, FOUGHT_OUT)
    }
    assert len(by_kind[OPENED]) == len(set(by_kind[OPENED])) >= 3, "no first measurement was made twice"
    assert sorted(by_kind[OPENED]) == sorted(by_kind[FOUGHT_OUT])
    seconds = {
        event.fields["candidate"]: event.fields["second_speedup"] for event in events if event.kind == FOUGHT_OUT
    }
    assert {one.candidate.id: one.evaluation.speedup for one in history if one.candidate.id in seconds} == seconds
    population = Population(PopulationConfig(islands=1), run.id, run.seed)
    replay(population, history, events)
    assert population.digest() == [event.fields for event in events if event.kind == "stopped"][-1]["digest"]


@pytest.mark.parametrize("in_order", [False, True])
def test_under_noise_run_top_and_report_name_the_same_best(
    tmp_path: Path, toy_problem: Problem, in_order: bool
) -> None:
    db = tmp_path / "kb.db"
    bench = Replay(Landscape(lambda reading: 4.0 + 0.001 * bowl(reading), noise=0.1))
    search = Search(toy_problem, db=str(db), run="toy", workbench=bench, evaluations=40, islands=2, in_order=in_order)
    outcome = search.run()
    assert outcome.best is not None
    with open_store(db, read_only=True) as store:
        (run,) = store.runs()
        events, found = store.events(run.id), top(store, "toy", 10)
        shown, best = standing(store, run.id), best_of(store, run.id)
    kinds = [event.kind for event in events]
    assert BOUT in kinds, "in this noise somebody is measured again"
    falls = [event.fields for event in events if event.kind == DETHRONED]
    assert all(fall["reason"] and fall["candidate_id"] for fall in falls)
    reported = series.best(shown)
    assert best is not None and reported is not None
    names = {one.candidate.id for one in (outcome.best, found[0], best, reported)}
    figures = {one.evaluation.speedup for one in (outcome.best, found[0], best, reported)}
    assert len(names) == len(figures) == 1
    assert is_elite(found[0]) and not any(is_elite(one) for one in found[1:])
    again = Search(toy_problem, db=str(db), run="toy", workbench=bench).run()
    assert again.best is not None and again.best.candidate.id in names
