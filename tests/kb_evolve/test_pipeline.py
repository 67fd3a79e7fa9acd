"""Builds overlap measurements; noise and a failing judge cost retries, not candidates."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, wait

import pytest

from fitness.evaluation import Job, JudgeError, Verdict
from fitness.replay import Failure, Landscape, Replay
from islands.candidate import Candidate
from kb_evolve.executors import InlineExecutor, Pools, local_pools
from kb_evolve.pipeline import Pipeline, Work


@pytest.fixture
def pools() -> Iterator[Pools]:
    opened = local_pools(thinkers=1, builders=2)
    yield opened
    opened.close()


def work(number: int, text: str = "") -> Work:
    source = f"constexpr int TILE = {number};{text}"
    candidate = Candidate(f"r-{number:06d}", number, 0, 1, "cpp", source)
    return Work(candidate, Job(problem="toy", problem_source="", source=source, incumbent_ms=1.0))


def drain(pipeline: Pipeline) -> list[Work]:
    """Everything that settles, until nothing is in flight."""
    settled = []
    while pipeline.futures:
        done, _ = wait(pipeline.futures, return_when=FIRST_COMPLETED)
        settled += [work for future in done if (work := pipeline.advance(future)) is not None]
    return settled


def test_builds_overlap_measurements_and_each_other(pools: Pools) -> None:
    bench = Replay(Landscape(build_s=0.06, measure_s=0.03))
    pipeline = Pipeline(bench, pools)
    started_s = time.monotonic()
    for number in range(1, 13):
        pipeline.start(work(number))
    assert len(drain(pipeline)) == 12
    wall_s = time.monotonic() - started_s
    busy_s = sum(span.ended_s - span.started_s for span in bench.spans)
    assert wall_s < 0.7 * busy_s, f"{busy_s:.2f} s of work took {wall_s:.2f} s: it ran one after the other"


def test_no_verdict_is_measured_again_twice_and_then_accepted(pools: Pools) -> None:
    pipeline = Pipeline(Replay(Landscape(failures=(Failure("TILE = 1;", Verdict.NO_VERDICT, times=2),))), pools)
    pipeline.start(work(1))
    assert [w.evaluation and w.evaluation.verdict for w in drain(pipeline)] == [Verdict.CORRECT]

    pipeline = Pipeline(Replay(Landscape(failures=(Failure("TILE = 1;", Verdict.NO_VERDICT),))), pools)
    pipeline.start(work(1))
    assert [w.evaluation and w.evaluation.verdict for w in drain(pipeline)] == [Verdict.NO_VERDICT]


@pytest.mark.parametrize("at_build", [True, False])
def test_a_judge_that_fails_once_is_asked_again(pools: Pools, at_build: bool) -> None:
    failure = Failure("TILE = 1;", None, at_build=at_build, times=1)
    pipeline = Pipeline(Replay(Landscape(failures=(failure,))), pools)
    pipeline.start(work(1))
    assert [w.evaluation and w.evaluation.verdict for w in drain(pipeline)] == [Verdict.CORRECT]


@pytest.mark.parametrize("at_build", [True, False])
def test_a_judge_that_fails_twice_is_an_error(pools: Pools, at_build: bool) -> None:
    pipeline = Pipeline(Replay(Landscape(failures=(Failure("TILE = 1;", None, at_build=at_build),))), pools)
    pipeline.start(work(1))
    with pytest.raises(JudgeError, match="call 2"):
        drain(pipeline)


def test_a_failed_build_settles_without_a_measurement(pools: Pools) -> None:
    bench = Replay(Landscape(failures=(Failure("oops", Verdict.COMPILE_ERROR, at_build=True),)))
    pipeline = Pipeline(bench, pools)
    pipeline.start(work(1, "oops"))
    assert [w.evaluation and w.evaluation.verdict for w in drain(pipeline)] == [Verdict.COMPILE_ERROR]
    assert [span.stage for span in bench.spans] == ["build"]


def test_again_measures_the_same_artifact_without_the_incumbents_shortcut(pools: Pools) -> None:
    bench = Replay(Landscape(noise=0.1))
    pipeline = Pipeline(bench, pools)
    pipeline.start(work(1))
    (settled,) = drain(pipeline)
    first = settled.evaluation
    pipeline.again(settled)
    (settled,) = drain(pipeline)
    assert settled.job.incumbent_ms is None
    assert settled.evaluation != first
    assert [span.stage for span in bench.spans] == ["build", "measure", "measure"]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_only_what_is_measured_again_on_a_gpu_is_profiled(pools: Pools, device: str) -> None:
    """A profile takes a second or two of the device: not of every candidate's."""
    pipeline = Pipeline(Replay(), pools)
    first = work(1)
    first.job = dataclasses.replace(first.job, device=device)
    pipeline.start(first)
    (settled,) = drain(pipeline)
    assert not settled.job.profile
    pipeline.again(settled)
    (settled,) = drain(pipeline)
    assert settled.job.fresh and settled.job.profile is (device != "cpu")


def test_cancelling_keeps_the_running_measurement_only(pools: Pools) -> None:
    pipeline = Pipeline(Replay(Landscape(measure_s=0.3)), pools)
    for number in range(1, 6):
        pipeline.start(work(number))
    deadline_s = time.monotonic() + 20
    while len(pipeline.measuring) < 3 and time.monotonic() < deadline_s:
        for future in [future for future in pipeline.building if future.done()]:
            pipeline.advance(future)
    pipeline.cancel_queued()
    assert len(pipeline.futures) == 1
    assert len(drain(pipeline)) == 1


def test_the_inline_executor_runs_at_submission_and_keeps_the_exception() -> None:
    order: list[int] = []
    executor = InlineExecutor()
    futures = [executor.submit(order.append, number) for number in range(3)]
    assert order == [0, 1, 2] and all(future.done() for future in futures)
    with pytest.raises(ZeroDivisionError):
        executor.submit(lambda: 1 / 0).result()
