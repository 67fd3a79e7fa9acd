"""Who is elite, found from speedups and few candidates, is what the whole history says; lists and times are right."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from random import Random

import pytest

from islands.archive import pareto
from islands.bouts import BOUT, ELITE, bout_fields, recorded
from islands.candidate import Evaluated
from islands.duels import DUEL, FOUGHT, UNDECIDED, Throne
from islands.lease import this_process
from islands.queries import correct_sources, front, health, lineage, record, records, times_of, totals
from islands.store import Store, open_store


def tell(store: Store, make, one: Evaluated) -> None:
    """Records and tells it, in a run that no process holds."""
    store.add_candidate("run00000", one.candidate)
    store.add_evaluation("run00000", one.candidate.id, one.evaluation, make.key(one.candidate))


def costs(number: int) -> dict[str, float]:
    """Figures besides the time: who comes later takes more memory."""
    return {"peak_mem_bytes": 1000 * (1 + number // 10), "error_ratio": 1.0 + number % 3}


def random_run(store: Store, make, seed: int, size: int) -> None:
    """A run with failures, repeated programs, duels and fresh measurements, as a loop would write it."""
    random, throne, told = Random(seed), Throne(2), []
    for number in range(size):
        speedup = None if random.random() < 0.2 else round(1 + random.random() * (1 + number / size), 2)
        features = random.choice(({}, {DUEL: FOUGHT}, {DUEL: UNDECIDED}))
        one = make.evaluated(number, speedup, random.choice((0.001, 0.2)), features=features, **costs(number))
        if told and random.random() < 0.15:
            twin = random.choice(told)
            one = Evaluated(dataclasses.replace(make.candidate(number), source=twin.candidate.source), twin.evaluation)
        tell(store, make, one)
        throne.tell(one, number)
        told.append(one)
        while (wanted := throne.wanted()) is not None:
            candidate = wanted.evaluated.candidate
            speedup = None if random.random() < 0.2 else random.uniform(0.5, 1.2) * wanted.evaluated.evaluation.speedup
            found = make.evaluation(candidate, speedup, 0.02, **costs(candidate.number))
            store.add_event("run00000", BOUT, bout_fields(wanted, found, number + 1))
            throne.retell(Evaluated(candidate, found), number + 1)


@pytest.mark.parametrize("seed", range(6))
def test_the_record_from_speedups_is_the_record_of_the_whole_history(tmp_path: Path, make, seed: int) -> None:
    with open_store(tmp_path / "kb.db") as store:
        store.create_run(make.run())
        with store.transaction():
            random_run(store, make, seed, 120)
        whole = recorded(store.history("run00000"), store.events("run00000"))
        assert record(store, "run00000") == whole
        assert len(whole.marks) > 1 and whole.estimates, "the run had changes of its elite and fresh measurements"
        elite = store.evaluated(whole.elite_id)
        assert elite is not None and whole.of(elite).evaluation.features[ELITE] is True


@pytest.mark.parametrize("seed", range(6))
def test_the_front_from_four_figures_is_the_front_of_the_whole_history(tmp_path: Path, make, seed: int) -> None:
    with open_store(tmp_path / "kb.db") as store:
        store.create_run(make.run())
        with store.transaction():
            random_run(store, make, seed, 120)
        history, known = store.history("run00000"), record(store, "run00000")
        whole = {one.candidate.id for one in pareto(map(known.of, history))}
        found = front(store, "run00000", known)
        assert set(found) == whole and len(whole) > 3
        assert found == [one.candidate.id for one in history if one.candidate.id in whole], "in the order told"
        sources = {one.candidate.source_sha256 for one in history if one.evaluation.is_correct}
        assert correct_sources(store, "run00000") == len(sources)


def test_the_records_of_several_runs_are_those_of_each(tmp_path: Path, make) -> None:
    with open_store(tmp_path / "kb.db") as store:
        for name in ("run00000", "run00001", "run00002"):
            store.create_run(make.run(name, name))
        random_run(store, make, 1, 30)
        for number, speedup in enumerate((1.0, 3.0, None)):
            other = make.candidate(number, "run00001", source=f"y = {number}\n")
            store.add_candidate("run00001", other)
            store.add_evaluation("run00001", other.id, make.evaluation(other, speedup), make.key(other))
        together = records(store, ["run00001", "run00000", "run00002"])
        assert together == {name: record(store, name) for name in together}
        assert together["run00001"].elite_id == "run00001-000001" and together["run00002"].elite_id == ""


def test_a_slow_candidate_is_not_read_when_the_elite_is_asked_for(tmp_path: Path, make) -> None:
    """Its document cannot be read at all, and nobody notices: it was overlooked by its speedup."""
    with open_store(tmp_path / "kb.db") as store:
        store.create_run(make.run())
        for number in range(12):
            tell(store, make, make.evaluated(number, 2.0 - number / 100))
        store._db.execute("DROP TRIGGER sources_no_delete")
        store._db.execute("PRAGMA foreign_keys = OFF")
        store._db.execute("DELETE FROM sources WHERE source = 'x = 11\n'")
        assert record(store, "run00000").elite_id == "run00000-000000"


def test_a_run_without_a_correct_candidate_has_no_elite(tmp_path: Path, make) -> None:
    with open_store(tmp_path / "kb.db") as store:
        store.create_run(make.run())
        tell(store, make, make.evaluated(0, None))
        assert record(store, "run00000").elite_id == ""
        assert totals(store, "run00000")["measured"] == 1


def test_health_tells_alive_silent_dead_done_stopped_and_failed(tmp_path: Path, make) -> None:
    with open_store(tmp_path / "kb.db") as store:
        run = make.run()
        store.create_run(run)
        assert health(store, run).status == "dead"
        store.take_lease(run.id, this_process())
        store.add_event(run.id, "started", {"config": {}})
        now_s = time.time()
        alive = health(store, run, now_s)
        assert (alive.status, alive.owner and alive.owner.pid) == ("alive", os.getpid())
        assert health(store, run, now_s + 3600).status == "silent"
        store.release_lease(run.id)
        assert health(store, run).status == "dead"
        for stop, status in (("budget", "done"), ("interrupted", "stopped"), ("judge_failed", "failed")):
            store.add_event(run.id, "stopped", {"stop": stop, "reason": f"because of {stop}"})
            assert health(store, run).status == status
            assert health(store, run).reason == f"because of {stop}"
        store.add_event(run.id, "started", {"config": {}})
        assert health(store, run).status == "dead", "begun again and gone without a word"


def test_times_lineage_and_the_last_telling_of_a_candidate(tmp_path: Path, make) -> None:
    with open_store(tmp_path / "kb.db") as store:
        store.create_run(make.run())
        assert store.last_told_at("run00000") is None
        parents: tuple[str, ...] = ()
        for number in range(5):
            one = make.evaluated(number, 1.0 + number, parent_ids=parents)
            tell(store, make, one)
            parents = (one.candidate.id,)
        untold = make.candidate(9, parent_ids=parents)
        store.add_candidate("run00000", untold)
        assert [one.candidate.number for one in lineage(store, "run00000-000003")] == [0, 1, 2, 3]
        assert [one.candidate.number for one in lineage(store, untold.id)] == [0, 1, 2, 3, 4]
        times = times_of(store, "run00000-000004")
        assert times is not None and times.opened_at is None and times.told_at == store.last_told_at("run00000")
        waiting = times_of(store, untold.id)
        assert waiting is not None and waiting.told_at is None and waiting.added_at
        assert times_of(store, "nobody") is None
