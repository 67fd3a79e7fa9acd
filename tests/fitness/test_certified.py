"""What single calls make of a batch's time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fitness.evaluation import Job
from fitness.timing import Timing
from fitness.trial import Trial

BATCHED = Timing(1.0, (0.99, 1.01), 2.0, 2.0, (1.98, 2.02), 20)
AS_LONG, LONGER = [0.99, 1.0, 1.01, 1.0, 1.02, 0.98], [1.49, 1.5, 1.51, 1.5, 1.52, 1.48]


def certified(monkeypatch, *series):
    """The decision when the single calls of each further try take so long [ms]."""
    session = SimpleNamespace(candidate_limits=lambda job: None, single_slack_ms=lambda batched_ms: 0.02)
    job = Job("toy", "", "", "cpp", "cpu")
    trial = Trial(None, session, job, "", 0.0)  # type: ignore[arg-type]
    tries = iter(series)
    monkeypatch.setattr(Trial, "_single", lambda self, reference_ms, keep_process: next(tries))
    return trial._certified(BATCHED)


def test_single_calls_that_take_as_long_bear_a_batch_out(monkeypatch):
    assert certified(monkeypatch, AS_LONG) == (BATCHED, "T1", "")
    assert certified(monkeypatch, LONGER, LONGER, AS_LONG) == (BATCHED, "T1", "")


def test_single_calls_that_take_longer_in_three_processes_are_the_score(monkeypatch):
    result, tier, note = certified(monkeypatch, LONGER, LONGER, LONGER)
    assert (result.kernel_ms, result.speedup, tier) == (1.5, pytest.approx(2.0 / 1.5), "T2")
    assert note == "; one call alone took 1.5 ms, so that is the score"


def test_too_few_undisturbed_single_calls_bear_nothing_out(monkeypatch):
    assert certified(monkeypatch, [], AS_LONG[:5], []) is None
    assert certified(monkeypatch, [], LONGER, AS_LONG[:5])[1] == "T2"
    assert certified(monkeypatch, [], AS_LONG) == (BATCHED, "T1", "")
