"""The scripted landscape behaves as a workbench, and the same way each time."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest

from fitness.evaluation import Job, JudgeError, Verdict
from fitness.replay import Failure, Landscape, Replay, bowl, read

SOURCE = '''CFLAGS = ["-O3", "-fopenmp"]
SOURCE = r"""
constexpr int TILE = 64;  // tune: 16 64
#pragma omp parallel for
"""
'''


def job(source: str = SOURCE) -> Job:
    return Job(problem="toy", problem_source="class Model: pass", source=source)


def test_reads_tunables_flags_and_pragmas_of_a_lean_source() -> None:
    reading = read(SOURCE)
    assert reading.tunables == {"TILE": 64}
    assert reading.flags == ("-O3", "-fopenmp")
    assert reading.pragmas == ("omp parallel for",)


def test_the_bowl_rewards_flags_and_has_one_best_value_for_a_tunable() -> None:
    values = [2**n for n in range(2, 10)]
    times = [bowl(read(f"constexpr int TILE = {value};")) for value in values]
    assert times.count(min(times)) == 1
    assert bowl(read(SOURCE)) < bowl(read(SOURCE.replace('"-O3", ', "")))


def test_the_same_seed_gives_the_same_noisy_answers() -> None:
    landscape = Landscape(noise=0.1, seed=3)
    first, second = Replay(landscape), Replay(landscape)
    answers = [[bench.evaluate(job()).kernel_ms for _ in range(3)] for bench in (first, second)]
    assert answers[0] == answers[1]
    assert len(set(answers[0])) == 3, "each measurement of one source draws its own noise"
    assert Replay(Landscape(noise=0.1, seed=4)).evaluate(job()).kernel_ms != answers[0][0]


def test_a_scripted_build_failure_is_in_the_artifact_and_is_not_measured() -> None:
    bench = Replay(Landscape(failures=(Failure("TILE = 64", Verdict.COMPILE_ERROR, at_build=True),)))
    artifact = bench.build(job())
    assert artifact.failure is not None and artifact.failure.verdict is Verdict.COMPILE_ERROR
    assert bench.measure(job(), artifact) is artifact.failure
    assert [span.stage for span in bench.spans] == ["build"]


def test_a_failure_with_times_passes_after_so_many_calls() -> None:
    bench = Replay(Landscape(failures=(Failure("TILE", Verdict.NO_VERDICT, times=2),)))
    verdicts = [bench.evaluate(job()).verdict for _ in range(3)]
    assert verdicts == [Verdict.NO_VERDICT, Verdict.NO_VERDICT, Verdict.CORRECT]


def test_a_failure_without_a_verdict_is_the_judges_own() -> None:
    bench = Replay(Landscape(failures=(Failure("TILE", None),)))
    with pytest.raises(JudgeError, match="call 1"):
        bench.evaluate(job())


def test_measurements_exclude_each_other() -> None:
    bench = Replay(Landscape(measure_s=0.05))
    artifact = bench.build(job())
    threads = [threading.Thread(target=bench.measure, args=(job(), artifact)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans = sorted((s for s in bench.spans if s.stage == "measure"), key=lambda span: span.started_s)
    assert all(one.ended_s <= other.started_s for one, other in pairwise(spans))


def test_close_ends_a_waiting_call_with_a_judge_error() -> None:
    bench = Replay(Landscape(build_s=60.0))
    threading.Timer(0.05, bench.close).start()
    started_s = time.monotonic()
    with pytest.raises(JudgeError, match="closed"):
        bench.build(job())
    assert time.monotonic() - started_s < 30


def test_baselines_are_named_and_unknown_ones_refused() -> None:
    bench = Replay(Landscape(reference_ms=2.0))
    assert bench.baseline(job(), "eager")["speedup_vs_eager"] == 1.0
    assert bench.baseline(job(), "compile")["speedup_vs_eager"] > 1.0
    with pytest.raises(JudgeError, match="magic"):
        bench.baseline(job(), "magic")
