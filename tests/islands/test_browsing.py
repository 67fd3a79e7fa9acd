"""Reading a store an increment or a page at a time gives what reading all of it gives."""

import dataclasses

import pytest

from fitness.evaluation import PROTOCOL, Evaluation, Verdict
from islands import browsing
from islands.browsing import State, Wish
from islands.candidate import Candidate
from islands.compaction import compact
from islands.lease import this_process
from islands.store import open_store


def tell(store, run, number, speedup=None, island=0, mutator="tune", rationale="", log="some log " * 200):
    parents = (f"{run.id}-000000",) if number else ()
    source = f"int variant = {number};\n"
    candidate = Candidate(f"{run.id}-{number:06d}", number, island, 0, "cpp", source, parents, mutator, rationale)
    times = {}
    if speedup:
        times = {"kernel_ms": 1 / speedup, "kernel_ms_ci": (0.9 / speedup, 1.1 / speedup), "reference_ms": 1.0}
        times |= {"speedup": speedup, "speedup_ci": (0.9 * speedup, 1.1 * speedup)}
        times |= {"features": {"spread": float("inf"), "threads": 2}, "labels": ("a", "b")}
    verdict = Verdict.CORRECT if speedup else Verdict.TIMEOUT
    evaluation = Evaluation(
        verdict, f"reason {number}", "p", "cpp", candidate.source_sha256, log=log, judge_sha256="j", **times
    )
    store.open_attempt(run.id, number, island, mutator, parents)
    store.add_candidate(run.id, candidate)
    store.close_attempt(run.id, number, "candidate", usage={"cost_usd": 0.25})
    key = (candidate.source_sha256, run.problem_sha256, "cpu", "fp32", PROTOCOL)
    store.add_evaluation(run.id, candidate.id, evaluation, key)


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "kb.db") as store:
        yield store


@pytest.fixture
def run(store, make):
    run = make.run()
    store.create_run(run)
    for number in range(12):
        tell(store, run, number, None if number % 4 == 3 else 1 + number, number % 2, ("tune", "diff")[number % 2])
    return run


def light(evaluated):
    """What a summary keeps of a candidate and its evaluation."""
    candidate = dataclasses.replace(evaluated.candidate, source="")
    return candidate, dataclasses.replace(evaluated.evaluation, log="")


@pytest.mark.parametrize("packed", [False, True])
def test_summaries_are_the_history_without_its_long_texts(store, run, packed):
    if packed:
        compact(store.path)
    assert [light(one) for one in store.summaries(run.id)] == [light(one) for one in store.history(run.id)]
    assert store.summaries(run.id, 10) == store.summaries(run.id)[10:]
    assert store.summaries(run.id, 2, 3) == store.summaries(run.id)[2:5]
    assert [one.candidate.source_sha256 for one in store.summaries(run.id)] == [
        one.candidate.source_sha256 for one in store.history(run.id)
    ]


def test_the_state_changes_with_every_kind_of_row(store, run):
    seen = [store.state(run.id)]
    store.open_attempt(run.id, 12, 0, "tune")
    seen.append(store.state(run.id))
    store.close_attempt(run.id, 12, "refused", "no")
    seen.append(store.state(run.id))
    store.add_event(run.id, "stopped", {})
    seen.append(store.state(run.id))
    tell(store, run, 13, 2.0)
    seen.append(store.state(run.id))
    assert len(set(seen)) == 5 and (seen[0].told, seen[-1].told, seen[-1].asked) == (12, 13, 14)
    assert store.state("nosuch") == State(0, 0, 0, 0)


def test_attempts_and_events_come_once_each(store, run):
    place, attempts = store.opened_since(run.id, 0)
    assert len(attempts) == 12 and store.opened_since(run.id, place) == (place, [])
    closed_place, closed = store.closed_since(run.id, 0)
    known = [dataclasses.replace(one, details={}, rationale="") for one in store.attempts(run.id)]
    assert closed == known
    store.open_attempt(run.id, 12, 1, "tune")
    store.close_attempt(run.id, 12, "error", "it broke", mutator="diff")
    assert [one.number for one in store.opened_since(run.id, place)[1]] == [12]
    assert [(one.number, one.mutator, one.island) for one in store.closed_since(run.id, closed_place)[1]] == [
        (12, "diff", 1)
    ]
    store.add_event(run.id, "one", {"a": 1})
    event, events = store.events_since(run.id, 0)
    store.add_event(run.id, "two", {})
    assert [one.kind for one in events + store.events_since(run.id, event)[1]] == ["one", "two"]


@pytest.mark.parametrize(
    ("wish", "numbers"),
    [
        (Wish(), [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (Wish(verdict="timeout"), [11, 7, 3]),
        (Wish(mutator="diff", island=1, verdict="correct"), [9, 5, 1]),
        (Wish(fastest=True), [10, 9, 8, 6, 5, 4, 2, 1, 0]),
        (Wish(text="VARIANT = 1"), [11, 10, 1]),
        (Wish(text="reason 7"), [7]),
        (Wish(text="0%"), []),
        (Wish(text="000_0"), []),
        (Wish(island=7), []),
    ],
)
def test_wishes_choose_candidates_and_pages_cut_them(store, run, wish, numbers):
    def found(skip, limit):
        return [one.candidate.number for one in store.browse(run.id, wish, skip, limit)]

    assert found(0, 50) == numbers
    assert found(0, 2) + found(2, 2) + found(4, 50) == numbers
    assert found(50, 10) == []


def test_children_paid_work_and_the_last_telling(store, run):
    assert store.children_of(f"{run.id}-000000", 3) == [f"{run.id}-{number:06d}" for number in (1, 2, 3)]
    assert store.paid(run.id) == (12, 3.0)
    assert store.last_told_at(run.id) is not None and store.last_told_at("nosuch") is None


def test_streams_give_what_the_lists_give_a_page_at_a_time(store, run, make, monkeypatch):
    for number in (2, 5, 5):
        store.add_event(run.id, "noted", {"number": number})
    for number, turn in ((2, 0), (5, 0), (5, 1), (11, 0)):
        store.open_request(run.id, make.request(number, turn))
    store.add_reply(run.id, 5, 1, make.reply())
    monkeypatch.setattr(browsing, "PAGE", 2)
    monkeypatch.setattr(browsing, "TURNS_PAGE", 2)
    assert list(store.stream_attempts(run.id)) == store.attempts(run.id)
    assert list(store.stream_events(run.id)) == store.events(run.id)
    assert list(store.stream_turns(run.id)) == store.turns(run.id) and len(store.turns(run.id)) == 4
    assert store.events_since(run.id, 0, 2)[1] == store.events(run.id)[:2]


def test_a_run_is_running_while_its_owner_lives(store, run):
    assert not store.is_running(run.id)
    store.take_lease(run.id, this_process())
    assert store.is_running(run.id)
    store.release_lease(run.id)
    assert not store.is_running(run.id)


def test_the_first_page_of_a_run_reads_no_more_rows_however_long_the_run_is(store, run):
    """Early and late in a run ten times as long: no history is walked."""

    def steps(skip):
        return steps_of(store, lambda: store.browse(run.id, Wish(), skip, 5))

    short = steps(0)
    with store.transaction():
        for number in range(12, 120):
            tell(store, run, number, 1.5, log="")
    assert steps(0) < 1.5 * short and steps(100) < 1.5 * short


def test_the_turns_of_one_attempt_take_no_more_steps_however_many_others_were_asked(store, run, make):
    def steps():
        return steps_of(store, lambda: store.turns(run.id, 11))

    store.open_request(run.id, make.request(11))
    short = steps()
    for number in range(11):
        for turn in range(20):
            store.open_request(run.id, make.request(number, turn))
    assert len(store.turns(run.id, 11)) == 1 and steps() < 1.5 * short


def steps_of(store, ask):
    """Tens of steps of SQLite's machine that an answer takes."""
    count = [0]

    def tick():
        count[0] += 1

    store._db.conn.set_progress_handler(tick, 10)
    ask()
    store._db.conn.set_progress_handler(None, 0)
    return count[0]
