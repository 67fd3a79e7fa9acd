"""The loop: what is told, what it costs, how it ends, and that the same seed gives the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fitness.evaluation import JudgeError, Verdict
from fitness.replay import Failure, Landscape, Replay
from islands.bouts import replay
from islands.population import Population, PopulationConfig
from islands.store import Store, open_store
from kb_evolve.config import ConfigError, resolve
from kb_evolve.search import Outcome, Search
from problems.problem import Problem, ProblemError


def search(problem: Problem, db: Path, bench: Replay | None = None, **options: Any) -> Outcome:
    options = {"evaluations": 25, "run": "toy", "islands": 2, **options}
    return Search(problem, db=str(db), workbench=bench or Replay(), **options).run()


def stored(db: Path, outcome: Outcome) -> tuple[Store, str]:
    return open_store(db, read_only=True), outcome.run.id


def test_a_search_finds_a_faster_kernel_and_stops_at_its_budget(tmp_path: Path, toy_problem: Problem) -> None:
    outcome = search(toy_problem, tmp_path / "kb.db", evaluations=40)
    assert outcome.stop == "budget" and "40 evaluations" in outcome.reason
    assert outcome.evaluations == 40
    assert outcome.best is not None and outcome.first is not None
    assert (outcome.best.evaluation.speedup or 0.0) > 2 * (outcome.first.evaluation.speedup or 1.0)
    assert outcome.lineage[0].candidate.generation == 0
    assert outcome.lineage[-1] == outcome.best


def test_a_program_is_built_once_and_the_seed_counts_once(tmp_path: Path, toy_problem: Problem) -> None:
    bench = Replay()
    outcome = search(toy_problem, tmp_path / "kb.db", bench, islands=3)
    store, run_id = stored(tmp_path / "kb.db", outcome)
    with store:
        history = store.history(run_id)
        assert store.counts(run_id).measured == outcome.evaluations == 25
        bouts = sum(event.kind == "bout" for event in store.events(run_id))
    assert [entry.candidate.generation for entry in history].count(0) == 3
    built = [span.source_sha256 for span in bench.spans if span.stage == "build"]
    assert len(set(built)) == 25
    assert len(built) == 25 + bouts, "only what is measured afresh is built again"
    assert {entry.candidate.source_sha256 for entry in history} == set(built)


def test_an_island_is_never_told_the_same_program_twice(tmp_path: Path, toy_problem: Problem) -> None:
    outcome = search(toy_problem, tmp_path / "kb.db", evaluations=40)
    store, run_id = stored(tmp_path / "kb.db", outcome)
    with store:
        told = [(entry.candidate.island, entry.candidate.source_sha256) for entry in store.history(run_id)]
    assert len(told) == len(set(told))


@pytest.mark.parametrize("builders", [1, 3])
def test_in_order_the_same_seed_gives_the_same_run_at_any_speed(
    tmp_path: Path, toy_problem: Problem, builders: int
) -> None:
    def told(name: str, landscape: Landscape) -> list[Any]:
        outcome = search(
            toy_problem,
            tmp_path / name,
            Replay(landscape),
            in_order=True,
            builders=builders,
            seed=5,
        )
        store, run_id = stored(tmp_path / name, outcome)
        with store:
            return [
                (entry.candidate.number, entry.candidate.source_sha256, entry.evaluation.kernel_ms)
                for entry in store.history(run_id)
            ]

    assert told("fast.db", Landscape(noise=0.05)) == told(
        "slow.db", Landscape(noise=0.05, build_s=0.004, measure_s=0.002)
    )


def test_a_run_goes_on_with_other_axes_and_its_history_falls_into_the_new_cells(
    tmp_path: Path, toy_problem: Problem
) -> None:
    db = tmp_path / "kb.db"
    search(toy_problem, db, axes=("memory",))
    axes = ("size", "vector")
    outcome = search(toy_problem, db, axes=axes, evaluations=30)
    store, run_id = stored(db, outcome)
    population = Population(PopulationConfig(islands=2, axes=axes), run_id, outcome.run.seed)
    with store:
        replay(population, store.history(run_id), store.events(run_id))
        stops = [event.fields["digest"] for event in store.events(run_id) if event.kind == "stopped"]
    assert outcome.evaluations == 30
    assert stops[1] == population.digest()
    assert {len(cell) for _, cell in population.cells} == {2}


def test_another_seed_gives_another_run(tmp_path: Path, toy_problem: Problem) -> None:
    sources = [
        [step.candidate.source_sha256 for step in search(toy_problem, tmp_path / f"{seed}.db", seed=seed).lineage]
        for seed in (1, 2)
    ]
    assert sources[0] != sources[1]


def test_a_new_best_is_told_with_its_second_measurement(tmp_path: Path, toy_problem: Problem) -> None:
    bench = Replay(Landscape(noise=0.2))
    outcome = search(toy_problem, tmp_path / "kb.db", bench)
    store, run_id = stored(tmp_path / "kb.db", outcome)
    with store:
        duels = {event.fields["candidate"]: event.fields for event in store.events(run_id) if event.kind == "duel"}
        told = {entry.candidate.id: entry.evaluation for entry in store.history(run_id)}
    assert duels
    for candidate_id, duel in duels.items():
        assert told[candidate_id].kernel_ms == duel["second_kernel_ms"] != duel["first_kernel_ms"]
    assert outcome.best is not None and outcome.best.candidate.id in duels


def test_the_outcomes_best_is_what_the_stored_history_gives(tmp_path: Path, toy_problem: Problem) -> None:
    outcome = search(toy_problem, tmp_path / "kb.db", Replay(Landscape(noise=0.1)))
    store, run_id = stored(tmp_path / "kb.db", outcome)
    population = Population(PopulationConfig(islands=2), run_id, 0)
    with store:
        replay(population, store.history(run_id), store.events(run_id))
        stopped = [event for event in store.events(run_id) if event.kind == "stopped"]
    assert population.best() == outcome.best
    assert stopped[-1].fields["digest"] == population.digest()


def test_a_failing_judge_ends_the_run_and_loses_nothing(tmp_path: Path, toy_problem: Problem) -> None:
    db = tmp_path / "kb.db"
    broken = Replay(Landscape(failures=(Failure(r"BLOCK = (?!4;)", None),)))
    with pytest.raises(JudgeError, match="scripted"):
        search(toy_problem, db, broken)
    with open_store(db, read_only=True) as store:
        run = store.find_run("toy")
        assert run is not None
        told_before = [entry.candidate.id for entry in store.history(run.id)]
        assert store.pending(run.id), "the candidate that the judge failed on is kept for a resume"
        assert all(attempt.outcome for attempt in store.attempts(run.id))
    outcome = search(toy_problem, db)
    store, run_id = stored(db, outcome)
    with store:
        assert [entry.candidate.id for entry in store.history(run_id)][: len(told_before)] == told_before
        assert store.pending(run_id) == []
    assert outcome.evaluations == 25


def test_a_first_kernel_that_is_wrong_ends_the_run_with_its_reason(tmp_path: Path, toy_problem: Problem) -> None:
    bench = Replay(Landscape(failures=(Failure("BLOCK", Verdict.WRONG_RESULT),)))
    outcome = search(toy_problem, tmp_path / "kb.db", bench)
    assert outcome.stop == "seed_failed" and "wrong_result" in outcome.reason
    assert outcome.best is None and outcome.evaluations == 1


def test_a_search_space_that_is_used_up_ends_the_run(tmp_path: Path, toy_problem: Problem) -> None:
    lines = [line for line in (toy_problem.seed or "").splitlines() if "tune:" not in line or "BLOCK" in line]
    seed = "\n".join(lines).replace("(BLOCK + UNROLL)", "BLOCK")
    small = Problem("toy", "toy", toy_problem.source, seed=seed)
    outcome = search(small, tmp_path / "kb.db", evaluations=1000, islands=1, mutators=["tune"], patience_attempts=20)
    assert outcome.stop == "exhausted" and outcome.evaluations == 8


def test_the_attempt_budget_counts_what_gave_nothing(tmp_path: Path, toy_problem: Problem) -> None:
    outcome = search(toy_problem, tmp_path / "kb.db", evaluations=None, attempts=12)
    assert outcome.stop == "budget" and "12 attempts" in outcome.reason
    assert sum(outcome.attempts.values()) == 12


def test_the_minutes_of_earlier_parts_count(tmp_path: Path, toy_problem: Problem) -> None:
    db = tmp_path / "kb.db"
    slow = Landscape(measure_s=0.05)
    first = search(toy_problem, db, Replay(slow), evaluations=None, minutes=0.01)
    assert "0.01 minutes" in first.reason
    again = search(toy_problem, db, Replay(slow), evaluations=None, minutes=0.01)
    assert again.evaluations == first.evaluations, "there was no time left"


def test_another_run_reuses_what_the_same_judge_measured(tmp_path: Path, toy_problem: Problem) -> None:
    db = tmp_path / "kb.db"
    search(toy_problem, db, in_order=True, run="one")
    bench = Replay()
    again = search(toy_problem, db, bench, in_order=True, run="two", evaluations=5)
    built = [span for span in bench.spans if span.stage == "build"]
    store, run_id = stored(db, again)
    with store:
        bouts = sum(event.kind == "bout" for event in store.events(run_id))
        one, two = (
            {entry.candidate.source_sha256 for entry in store.history(run.id) if entry.candidate.generation > 0}
            for run in sorted(store.runs(), key=lambda run: run.name)
        )
    assert again.evaluations == 5 and len(built) == 5 + bouts
    reused = two - {span.source_sha256 for span in built}
    assert reused, "a program of the first run must be told without a build"
    assert reused <= one, "what nobody measured must be built"


def test_a_changed_problem_is_another_run(tmp_path: Path, toy_problem: Problem) -> None:
    db = tmp_path / "kb.db"
    search(toy_problem, db, evaluations=3)
    changed = Problem("toy", "toy", toy_problem.source + "\n# changed\n", seed=toy_problem.seed)
    with pytest.raises(ConfigError, match="--run NAME"):
        search(changed, db, evaluations=3)


def test_a_larger_budget_goes_on_with_the_stored_configuration(tmp_path: Path, toy_problem: Problem) -> None:
    db = tmp_path / "kb.db"
    search(toy_problem, db, evaluations=5, islands=3)
    outcome = Search(toy_problem, db=str(db), run="toy", workbench=Replay(), evaluations=9).run()
    assert outcome.evaluations == 9
    with open_store(db, read_only=True) as store:
        started = [event.fields["config"] for event in store.events(outcome.run.id) if event.kind == "started"]
    assert [resolve(config).population.islands for config in started] == [3, 3]


def test_a_problem_without_a_seed_needs_a_first_kernel(tmp_path: Path, toy_problem: Problem) -> None:
    bare = Problem("toy", "toy", toy_problem.source)
    with pytest.raises(ProblemError, match="--start"):
        search(bare, tmp_path / "kb.db")
    assert not (tmp_path / "kb.db").exists()
    kernel = tmp_path / "kernel.py"
    kernel.write_text(toy_problem.seed or "")
    assert search(bare, tmp_path / "kb.db", start=str(kernel), evaluations=4).evaluations == 4


def test_a_first_kernel_that_is_only_verified_ends_the_run_because_a_search_needs_times(
    tmp_path: Path, toy_problem: Problem
) -> None:
    bench = Replay(Landscape(failures=(Failure("BLOCK", Verdict.VERIFIED),)))
    with pytest.raises(JudgeError, match="a search needs times"):
        search(toy_problem, tmp_path / "kb.db", bench)


def test_every_told_evaluation_carries_the_labels_of_its_source(tmp_path: Path, toy_problem: Problem) -> None:
    seed = (toy_problem.seed or "").replace("return out", "return torch.relu(out)")
    labelled = Problem("toy", "toy", toy_problem.source, seed=seed)
    outcome = search(labelled, tmp_path / "kb.db", evaluations=5)
    store, run_id = stored(tmp_path / "kb.db", outcome)
    with store:
        history = store.history(run_id)
    assert len(history) > 5 and all(entry.evaluation.labels == ("torch-ops",) for entry in history)
