"""The contract of the store: what is recorded is found again, once."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import sqlite3
import threading

import pytest

from fitness.evaluation import Verdict
from islands.novelty import digests, digests_of
from islands.run import Attempt, Counts, Event, new_run_id
from islands.store import StoreError, open_store


def test_a_run_is_found_by_its_name_and_by_its_id(store, make):
    assert store.find_run("demo") == store.find_run("run00000") == make.run()
    assert store.find_run("other") is None


def test_runs_come_oldest_first(store, make):
    older = make.run("run00001", "older", started_at="2025-01-01T00:00:00.000+00:00")
    store.create_run(older)
    assert [run.name for run in store.runs()] == ["older", "demo"]


def test_an_id_wins_over_another_runs_name(store, make):
    store.create_run(make.run("run00001", "run00000"))
    assert store.find_run("run00000").name == "demo"


def test_a_second_run_of_the_same_name_is_refused(store, make):
    with pytest.raises(StoreError, match=r"cannot create run demo.*recorded already"):
        store.create_run(make.run("run00001"))
    assert len(store.runs()) == 1


def test_a_problem_that_does_not_fit_its_digest_is_refused(store, make):
    with pytest.raises(StoreError, match="problem_sha256"):
        store.create_run(make.run("run00001", "other", problem_source="class Other: ...\n"))


def test_a_problem_and_a_source_are_stored_once(store, make, path):
    store.create_run(make.run("run00001", "other"))
    for number in range(3):
        store.add_candidate("run00000", make.candidate(number, source="same\n"))
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT count(*) FROM problems").fetchone() == (1,)
        assert raw.execute("SELECT count(*) FROM sources").fetchone() == (1,)


def test_run_ids_are_eight_letters_and_digits_and_differ():
    ids = {new_run_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(one) == 8 and one.isalnum() and one.islower() and one[0].isalpha() for one in ids)


def test_an_attempt_is_open_until_it_is_closed(store, make):
    store.open_attempt("run00000", 4, 0, "chosen later", ("run00000-000000",))
    (attempt,) = store.attempts("run00000")
    assert (attempt.outcome, attempt.closed_at, attempt.parent_ids) == (None, None, ("run00000-000000",))
    assert store.counts("run00000").attempts == {"open": 1}


def test_a_closed_attempt_gives_back_all_that_it_was_given(store):
    store.open_attempt("run00000", 4, 0, "chosen later", ())
    usage = {"model": "m", "prompt_tokens": 10, "completion_tokens": 2, "cost_usd": 0.25, "latency_s": 1.5}
    store.close_attempt(
        "run00000", 4, "refused", "no tunable", usage, {"tried": [1, 2]}, mutator="tune", rationale="why"
    )
    (found,) = store.attempts("run00000")
    opened = Attempt("run00000", 4, 0, "tune", (), found.opened_at)
    assert found == dataclasses.replace(
        opened,
        outcome="refused",
        reason="no tunable",
        rationale="why",
        usage=usage,
        details={"tried": [1, 2]},
        closed_at=found.closed_at,
    )


@dataclasses.dataclass
class Spent:
    cost_usd: float = 0.5
    prompt_tokens: int = 3


def test_usage_may_be_a_dataclass_and_is_summed_by_counts(store):
    for number in range(2):
        store.open_attempt("run00000", number, 0, "llm", ())
        store.close_attempt("run00000", number, "error", usage=Spent())
    counts = store.counts("run00000")
    assert (counts.cost_usd, counts.prompt_tokens, counts.completion_tokens) == (1.0, 6, 0)


@pytest.mark.parametrize("outcome", ["done", "", "Candidate"])
def test_an_unknown_outcome_is_refused(store, outcome):
    store.open_attempt("run00000", 0, 0, "tune", ())
    with pytest.raises(StoreError, match="must be one of candidate, refused, duplicate, error, lost"):
        store.close_attempt("run00000", 0, outcome)


def test_an_attempt_is_opened_once_and_closed_once(store):
    store.open_attempt("run00000", 0, 0, "tune", ())
    with pytest.raises(StoreError, match="recorded already"):
        store.open_attempt("run00000", 0, 0, "tune", ())
    store.close_attempt("run00000", 0, "lost")
    with pytest.raises(StoreError, match="recorded already"):
        store.close_attempt("run00000", 0, "candidate")
    assert store.counts("run00000").attempts == {"lost": 1}


def test_closing_what_was_never_opened_is_refused(store):
    with pytest.raises(StoreError, match=r"close attempt 9.*not recorded"):
        store.close_attempt("run00000", 9, "lost")


def test_a_candidate_comes_back_as_it_was(store, make):
    parents = [make.candidate(number) for number in (2, 0, 1)]
    new = make.candidate(
        4,
        source="x = 'ü\x00\U0001f600'\r\n",
        parent_ids=tuple(parent.id for parent in parents),
        mutator="crossover",
        rationale="both",
        details={"tunables": {"TILE": 64}, "nested": [1, None, True]},
    )
    for one in (*parents, new):
        store.add_candidate("run00000", one)
    assert store.find_candidate(new.id) == new
    assert store.pending("run00000") == [*sorted(parents, key=lambda one: one.number), new]


def test_a_candidate_with_an_unknown_parent_is_refused_whole(store, make, path):
    with pytest.raises(StoreError, match="a parent that is not recorded"):
        store.add_candidate("run00000", make.candidate(4, parent_ids=("run00000-000003",)))
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT count(*) FROM candidates").fetchone() == (0,)
        assert raw.execute("SELECT count(*) FROM sources").fetchone() == (0,)


def test_a_number_serves_one_candidate(store, make):
    store.add_candidate("run00000", make.candidate(4))
    with pytest.raises(StoreError, match="recorded already"):
        store.add_candidate("run00000", make.candidate(4, source="another\n"))


def test_a_candidate_of_an_unknown_run_is_refused(store, make):
    with pytest.raises(StoreError, match="not recorded"):
        store.add_candidate("run99999", make.candidate(4, "run99999"))


def test_text_that_a_model_broke_does_not_break_the_record(store, make):
    store.add_candidate("run00000", make.candidate(0, rationale="half \ud800 a pair"))
    assert store.pending("run00000")[0].rationale == "half \\ud800 a pair"
    with pytest.raises(StoreError, match="not valid Unicode"):
        store.add_candidate("run00000", make.candidate(1, source="\ud800"))


def test_a_number_beyond_64_bits_is_refused_with_advice(store, make):
    with pytest.raises(StoreError, match="64 bits"):
        store.create_run(make.run("run00001", "big", seed=2**64))


def test_an_evaluation_comes_back_as_it_was_even_with_infinite_errors(store, make):
    told = make.evaluated(0, None, features={"loss": math.inf, "deep": [{"low": -math.inf}]}, log="\ud800 ü")
    make.record(store, make.run(), told)
    assert store.evaluated(told.candidate.id) == told
    assert store.history("run00000") == [told]


def test_history_is_in_the_order_told_not_in_the_order_added(store, make):
    made = [make.evaluated(number, 1.0 + number) for number in range(4)]
    for one in made:
        store.add_candidate("run00000", one.candidate)
    for number in (2, 0, 3, 1):
        one = made[number]
        store.add_evaluation("run00000", one.candidate.id, one.evaluation, make.key(one.candidate))
    assert [one.candidate.number for one in store.history("run00000")] == [2, 0, 3, 1]
    moments = store.told_at("run00000")
    assert len(moments) == 4 and moments == sorted(moments)
    assert store.pending("run00000") == []


def test_a_candidate_is_told_once(store, make):
    told = make.evaluated(0, 1.5)
    make.record(store, make.run(), told)
    for speedup in (1.5, 1.6):
        again = make.evaluation(told.candidate, speedup)
        with pytest.raises(StoreError, match=r"tell candidate run00000-000000.*recorded already"):
            store.add_evaluation("run00000", told.candidate.id, again, make.key(told.candidate))
    assert store.counts("run00000").told == store.counts("run00000").measured == 1


def test_an_evaluation_measured_once_is_told_to_several_candidates(store, make):
    made = [make.candidate(number, source="seed\n") for number in range(4)]
    measured = make.evaluation(made[0], 1.25)
    for one in made:
        store.add_candidate("run00000", one)
        store.add_evaluation("run00000", one.id, measured, make.key(one))
    assert store.counts("run00000") == Counts({}, {"correct": 4}, 4, 4, 1, 0, 0, 0.0)
    assert [one.candidate for one in store.history("run00000")] == made
    assert len(store.top()) == 1


def test_another_run_finds_the_evaluation_and_does_not_pay_for_it(store, make):
    told = make.evaluated(0, 1.5)
    make.record(store, make.run(), told)
    other = make.run("run00001", "other")
    store.create_run(other)
    twin = make.candidate(0, "run00001", source=told.candidate.source)
    found = store.find_evaluation(make.key(twin))
    assert found == told.evaluation
    store.add_candidate("run00001", twin)
    store.add_evaluation("run00001", twin.id, found, make.key(twin))
    counts = store.counts("run00001")
    assert (counts.told, counts.measured) == (1, 0)


@pytest.mark.parametrize("part", range(5))
def test_no_evaluation_is_found_under_a_key_that_differs_in_one_part(store, make, part):
    told = make.evaluated(0, 1.5)
    make.record(store, make.run(), told)
    key = list(make.key(told.candidate))
    assert store.find_evaluation(tuple(key)) == told.evaluation
    key[part] = "other"
    assert store.find_evaluation(tuple(key)) is None


def test_a_key_that_names_a_judge_finds_only_that_judges_evaluation(store, make):
    told = make.evaluated(0, 1.5, judge_sha256="a" * 64)
    make.record(store, make.run(), told)
    key = make.key(told.candidate)
    assert store.find_evaluation((*key, "a" * 64)) == store.find_evaluation((*key, "")) == told.evaluation
    assert store.find_evaluation((*key, "b" * 64)) is None


def test_a_key_of_another_length_is_refused(store):
    with pytest.raises(StoreError, match="source_sha256, problem_sha256, device, precision, protocol"):
        store.find_evaluation(("a", "b"))


def test_the_newest_evaluation_is_found_and_one_without_a_verdict_never(store, make):
    for number, verdict in enumerate((Verdict.NO_VERDICT, Verdict.TIMEOUT, Verdict.RUNTIME_ERROR, Verdict.NO_VERDICT)):
        told = make.evaluated(number, None, source="same\n", verdict=verdict)
        make.record(store, make.run(), told)
        found = store.find_evaluation(make.key(told.candidate))
        assert (found and found.verdict) == (None, "timeout", "runtime_error", "runtime_error")[number]


def test_an_evaluation_of_another_source_is_refused(store, make):
    first, second = make.candidate(0), make.candidate(1)
    store.add_candidate("run00000", first)
    with pytest.raises(StoreError, match="another program"):
        store.add_evaluation("run00000", first.id, make.evaluation(second, 2.0), make.key(first))
    with pytest.raises(StoreError, match="another program"):
        store.add_evaluation("run00000", first.id, make.evaluation(first, 2.0), make.key(second))
    with pytest.raises(StoreError, match="has no candidate"):
        store.add_evaluation("run00000", second.id, make.evaluation(second, 2.0), make.key(second))
    assert store.pending("run00000") == [first]


def test_a_candidate_is_found_by_a_unique_beginning_of_its_id(store, make):
    for number in (1, 10, 11):
        store.add_candidate("run00000", make.candidate(number))
    assert store.find_candidate("run00000-00000").number == 1
    assert store.find_candidate("run00000-000011").number == 11
    assert store.find_candidate("run1") is None
    with pytest.raises(StoreError, match=r"run00000-000010, run00000-000011"):
        store.find_candidate("run00000-00001")
    with pytest.raises(StoreError, match="several"):
        store.find_candidate("")


def test_an_id_that_another_one_continues_is_still_found(store, make):
    store.add_candidate("run00000", make.candidate(123456))
    store.add_candidate("run00000", make.candidate(1234567))
    assert store.find_candidate("run00000-123456").number == 123456


def test_an_untold_or_unknown_candidate_has_no_evaluation(store, make):
    store.add_candidate("run00000", make.candidate(0))
    assert store.evaluated("run00000-000000") is None
    assert store.evaluated("run00000-000001") is None


def test_top_is_fastest_first_over_runs_and_leaves_failures_out(store, make):
    text = "class Softmax: ...\n"
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    other = make.run("run00001", "other", problem_id="softmax", problem_source=text, problem_sha256=sha256)
    store.create_run(other)
    for number, speedup in enumerate((1.5, None, 3.0, 2.0)):
        make.record(store, make.run(), make.evaluated(number, speedup))
    make.record(store, other, make.evaluated(0, 2.5, run_id="run00001"))
    assert [one.evaluation.speedup for one in store.top()] == [3.0, 2.5, 2.0, 1.5]
    assert [one.evaluation.speedup for one in store.top(limit=1)] == [3.0]
    assert [one.evaluation.speedup for one in store.top("rmsnorm", limit=2)] == [3.0, 2.0]
    assert [one.evaluation.speedup for one in store.top("softmax")] == [2.5]
    assert store.top("scan") == []


def test_top_finds_a_problem_under_every_name_that_a_run_gave_it(store, make):
    make.record(store, make.run(), make.evaluated(0, 2.0))
    store.create_run(make.run("run00001", "other", problem_id="./rmsnorm.py"))
    assert [one.candidate.id for one in store.top("./rmsnorm.py")] == ["run00000-000000"]


def test_counts_tell_outcomes_and_verdicts(store, make):
    for number, speedup in enumerate((1.5, None, 3.0)):
        make.record(store, make.run(), make.evaluated(number, speedup))
    store.open_attempt("run00000", 7, 3, "tune", ())
    counts = store.counts("run00000")
    assert counts.attempts == {"candidate": 3, "open": 1}
    assert counts.verdicts == {"correct": 2, "wrong_result": 1}
    assert (counts.candidates, counts.told, counts.measured) == (3, 3, 3)


def test_the_next_number_follows_attempts_and_candidates(store, make):
    assert store.next_number("run00000") == 0
    store.add_candidate("run00000", make.candidate(3))
    assert store.next_number("run00000") == 4
    store.open_attempt("run00000", 9, 1, "tune", ())
    assert store.next_number("run00000") == 10


def test_events_come_in_order_with_their_fields(store):
    store.add_event("run00000", "started", {"pid": 1})
    store.add_event("run00000", "duel", {"gain": math.inf})
    first, second = store.events("run00000")
    assert first == Event("run00000", "started", {"pid": 1}, first.at)
    assert (second.kind, second.fields) == ("duel", {"gain": math.inf})


def test_a_transaction_keeps_all_or_nothing(store, make):
    with pytest.raises(RuntimeError), store.transaction():
        make.record(store, make.run(), make.evaluated(0, 1.5))
        raise RuntimeError("killed")
    assert store.attempts("run00000") == store.history("run00000") == []
    with store.transaction():
        make.record(store, make.run(), make.evaluated(0, 1.5))
    assert len(store.history("run00000")) == 1


def test_a_refused_write_inside_a_transaction_leaves_the_others(store, make):
    with store.transaction():
        store.add_event("run00000", "before", {})
        with pytest.raises(StoreError):
            store.add_candidate("run00000", make.candidate(4, parent_ids=("nobody",)))
        store.add_event("run00000", "after", {})
    assert [event.kind for event in store.events("run00000")] == ["before", "after"]
    assert store.pending("run00000") == []


def test_records_can_be_neither_changed_nor_removed(store, make, path):
    make.record(store, make.run(), make.evaluated(0, 1.5))
    make.record(store, make.run(), make.evaluated(4, 1.5, parent_ids=("run00000-000000",)))
    store.add_event("run00000", "started", {})
    make.converse(store, "run00000", 4)
    with sqlite3.connect(path) as raw:
        raw.execute("INSERT INTO packs VALUES ('aa', 1, x'00')")
        tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        tables -= {"leases", "_sqlite_migrations"}
        assert len(tables) == 16
        for table in tables:
            column = raw.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchone()[0]
            for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET {column} = {column}"):
                with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                    raw.execute(statement)


def test_eight_threads_share_one_store_and_lose_nothing(store, make):
    failures = []

    def work(first: int) -> None:
        try:
            for number in range(first, first + 10):
                make.record(store, make.run(), make.evaluated(number, 1.0 + number / 100))
                assert store.evaluated(f"run00000-{number:06d}") is not None
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[10 * one]) for one in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(one.candidate.number for one in store.history("run00000")) == list(range(80))


def test_a_reader_sees_what_a_writer_adds_and_cannot_write(store, make, path):
    with open_store(path, read_only=True) as reader:
        assert reader.history("run00000") == []
        told = make.evaluated(0, 1.5)
        make.record(store, make.run(), told)
        assert reader.history("run00000") == [told]
        with pytest.raises(StoreError, match="opened read-only"):
            reader.add_event("run00000", "note", {})
        with pytest.raises(StoreError, match="opened read-only"), reader.lease("run00000"):
            pass


def test_a_forked_process_must_open_the_file_itself(store):
    child = os.fork()
    if child == 0:
        try:
            store.runs()
        except StoreError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(store.runs()) == 1


def test_a_healthy_file_has_no_findings(store, make):
    make.record(store, make.run(), make.evaluated(0, 1.5))
    assert store.check() == []


def test_digests_come_back_with_a_candidate_and_are_made_anew_under_other_rules(store, make, path, monkeypatch):
    make.record(store, make.run(), make.evaluated(0, 1.5))
    expected = digests(make.evaluated(0, 1.5).candidate.source)
    assert store.history("run00000")[0].candidate.digests == expected
    store.close()
    with sqlite3.connect(path) as raw:
        raw.execute("DROP TRIGGER fingerprints_no_update")
        raw.execute("UPDATE fingerprints SET scheme = 'of before'")
    with open_store(path) as again:
        candidate = again.history("run00000")[0].candidate
        assert candidate.digests is None and digests_of(candidate) == expected


def test_a_history_is_streamed_page_by_page_in_order(store, make, monkeypatch):
    monkeypatch.setattr("islands.store.PAGE", 3)
    for number in range(8):
        make.record(store, make.run(), make.evaluated(number, 1.5))
    assert [one.candidate.number for one in store.stream("run00000")] == list(range(8))
    ids = [f"run00000-{number:06d}" for number in (6, 2, 99)]
    assert sorted(one.candidate.number for one in store.told_of(ids)) == [2, 6]
