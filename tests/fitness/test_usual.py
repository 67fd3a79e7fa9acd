"""Rounds whose reference is slower than it usually is count only where there are no others."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fitness import rounds as protocol
from fitness.calls import Call
from fitness.draws import Draw
from fitness.rounds import Bench, Plan, Rounds, paired
from fitness.usual import FEWEST, MOST, SLOW, Usual

BATCH = [Draw("own", [], [])]


class Side:
    """A process whose windows take what it is told."""

    def __init__(self, window_ms: Callable[[], float]) -> None:
        self._window_ms = window_ms

    def is_warm(self, calls: int) -> bool:
        return False

    def usual_tail_ms(self, calls: int) -> float:
        return 0.0

    def let_go(self) -> float:
        return 0.0

    def call(self, batch: object, flush: object) -> Call:
        return Call(self._window_ms(), [])


class Feed:
    """Batches without end."""

    rounds = 1000

    def batches(self, order: random.Random) -> Iterator[tuple[list[Draw], bool]]:
        while True:
            yield BATCH, True

    def exam(self) -> list[list[Draw]]:
        return []

    def adapt(self, window_ms: float, *, is_last: bool) -> bool:
        return False


def session(usual: Usual, references_ms: Iterator[float]) -> Any:
    """One whose every new reference process takes the next of these times."""

    def reference(is_copied: bool) -> Side:
        took_ms = next(references_ms)
        return Side(lambda: took_ms)

    return SimpleNamespace(
        usual=usual, feed=lambda *_, **__: Feed(), warm_rounds=1, warm_again=1, rounds_per_process=7, fixed_ms=0.0,
        put_off_share=0.05, looks=(20, 40), precision=0.015, timed_s=0.05, timed_reference=reference,
        give_back=lambda reference: None, compare=lambda *_: None,
    )  # fmt: skip


def timed(usual: Usual, *references_ms: float) -> Rounds:
    """The rounds of a candidate of 1 ms beside such references, the last of them for ever."""
    endless = itertools.chain(references_ms, itertools.repeat(references_ms[-1]))
    bench = Bench(lambda _: None, flush=None, disturbed=str)  # type: ignore[arg-type]
    return paired(bench, session(usual, endless), lambda: Side(lambda: 1.0), False, Plan(1))  # type: ignore[arg-type, return-value]


def known(time_ms: float) -> Usual:
    usual = Usual()
    for _ in range(FEWEST):
        usual.add(time_ms)
    return usual


def test_nothing_is_usual_before_there_are_enough_rounds():
    usual = Usual()
    for _ in range(FEWEST - 1):
        usual.add(2.0)
    assert not usual.is_slow(100.0)
    usual.add(2.0)
    assert usual.is_slow(2.0 * SLOW + 0.01) and not usual.is_slow(2.0 * SLOW - 0.01)


def test_what_has_changed_for_good_is_usual_in_the_end():
    usual = known(2.0)
    for _ in range(MOST):
        usual.add(3.0)
    assert not usual.is_slow(3.0)


def test_a_slow_reference_process_is_left_behind():
    found = timed(known(2.0), 3.0, 2.0)
    assert set(found.reference_ms) == {2.0} and found.kept == 20
    assert len(found.set_aside) == 7  # all rounds of the first process


def test_where_all_are_slow_all_count():
    found = timed(known(2.0), 3.0)
    assert set(found.reference_ms) == {3.0} and found.kept >= protocol.FEWEST_ROUNDS


@pytest.mark.parametrize("candidates", [1, 3])
def test_one_candidate_does_not_decide_what_is_usual(candidates):
    usual = Usual()
    for _ in range(MOST):
        usual.add(2.0)
    for _ in range(candidates):
        timed(usual, 3.0)
    assert usual.is_slow(3.0)
