"""How many calls the windows of one candidate hold, by how long its untimed ones took."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from random import Random
from types import SimpleNamespace

import pytest

from fitness.calls import Call
from fitness.gpu import room
from fitness.gpu.calls import GpuRunner, usual
from fitness.gpu.oracle import Stream
from fitness.rounds import Bench, Rounds, Spared, _round, _share


def stream(calls: int, capacity: int) -> Stream:
    session = SimpleNamespace(capacity=capacity, timed_families=lambda _: ["own"], other_families=lambda _: [])
    return Stream(session, False, calls)  # type: ignore[arg-type]


def calls_after(calls: int, capacity: int, *windows_ms: float) -> tuple[int, list[bool]]:
    """The calls of the next window, and whether another untimed batch was asked for, window by window."""
    one = stream(calls, capacity)
    asked = [one.adapt(ms, is_last=index + 1 == len(windows_ms)) for index, ms in enumerate(windows_ms)]
    return one._calls, asked


def test_windows_of_a_candidate_as_fast_as_the_reference_stay():
    assert calls_after(100, 400, 90.0, 12.5) == (100, [False, False])


def test_a_slow_first_window_that_only_took_memory_changes_nothing():
    assert calls_after(100, 400, 150.0, 10.0) == (100, [False, False])


def test_a_much_faster_candidate_gets_longer_windows_and_one_more_untimed_batch():
    assert calls_after(100, 400, 90.0, 4.0) == (300, [False, True])


def test_windows_grow_no_further_than_the_memory_set_aside():
    assert calls_after(100, 250, 90.0, 1.0) == (250, [False, True])
    assert calls_after(100, 100, 90.0, 1.0) == (100, [False, False])


def test_a_call_that_is_timed_alone_stays_alone():
    assert calls_after(1, 1, 2.0, 2.0) == (1, [False, False])


def test_a_much_slower_candidate_gets_fewer_calls():
    assert calls_after(100, 400, 800.0, 200.0) == (25, [False, False])


def test_rounds_that_were_all_kept_were_not_disturbed():
    assert Rounds(kernel_ms=[1.0] * 4).disturbed() == "0 of 4 rounds were disturbed"


@pytest.mark.parametrize(
    ("call_ms", "fitting", "slot_bytes", "expected"),
    [
        (0.1, 1000, 1 << 20, (120, 1000)),
        (0.1, 90, 1 << 20, (90, 90)),
        (0.1, 1000, 1 << 28, (120, 120)),
        (1.1, 1000, 1 << 28, (11, 48)),
        (0.001, 5000, 1 << 10, (1024, 1024)),
        (13.0, 1000, 1 << 20, (1, 1)),
        (5.0, 1000, 1 << 20, (3, 50)),
    ],
)
def test_a_window_holds_calls_for_twelve_milliseconds_and_room_for_faster_ones(call_ms, fitting, slot_bytes, expected):
    assert room.window_calls(call_ms, fitting, slot_bytes) == expected


def test_an_early_done_gains_less_than_a_twentieth_whatever_the_window():
    around_ms, saved_ms = 0.87, 0.25
    for work_ms in (number / 100 for number in range(5, 2000)):
        told_ms = _share(work_ms + around_ms - saved_ms, around_ms)
        assert told_ms > 0.95 * work_ms, work_ms


def test_of_a_new_reference_no_tail_is_usual_yet():
    new = object.__new__(GpuRunner)
    new._tails_ms = defaultdict(deque, {8: deque([0.4, 0.5])})
    assert (new.usual_tail_ms(5), new.usual_tail_ms(16)) == (0.0, 0.4)


def test_a_long_tail_of_a_candidate_counts_beyond_what_is_usual():
    tails = [0.40 + 0.01 * number for number in range(20)]
    assert usual(tails) == pytest.approx(0.57)
    assert usual([0.5]) == 0.5
    assert usual([0.4, 0.5, 5.0]) == 0.5


class Recorded:
    """A side of a round that only notes when it was called."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self._name, self._calls = name, calls

    def call(self, batch: object, flush: object) -> Call:
        self._calls.append(self._name)
        return Call(1.0, [])


@pytest.mark.parametrize(
    ("spared", "orders"),
    [
        (Spared.NEVER, {("candidate", "reference"), ("reference", "candidate")}),
        (Spared.AFTERWARDS, {("candidate",), ("reference", "candidate")}),
        (Spared.ALWAYS, {("candidate",)}),
    ],
)
def test_what_goes_before_a_candidates_call_does_not_tell_a_surprise_from_a_timed_round(spared, orders):
    bench = Bench(lambda _: None, flush=None, disturbed=str)  # type: ignore[arg-type]
    seen, random = set(), Random(0)
    for _ in range(40):
        calls: list[str] = []
        sides = [Recorded("candidate", calls), Recorded("reference", calls)]
        _, ours = _round(bench, sides, [], random, spared)  # type: ignore[arg-type]
        assert (ours is None) == ("reference" not in calls)
        seen.add(tuple(calls))
    assert seen == orders


def test_the_commonest_reason_for_dropped_rounds_is_told():
    rounds = Rounds(kernel_ms=[1.0], disturbances=Counter({"process 7 also uses the GPU (500 MiB)": 5, "slow": 2}))
    assert rounds.disturbed() == "7 of 8 rounds were disturbed: process 7 also uses the GPU (500 MiB)"


@pytest.mark.parametrize("window_ms", [7.0, 2.0])
def test_grown_windows_last_about_as_long_as_others(window_ms):
    calls, _ = calls_after(100, 1000, 90.0, window_ms)
    assert calls / 100 * window_ms == pytest.approx(12.0, abs=window_ms / 100)
