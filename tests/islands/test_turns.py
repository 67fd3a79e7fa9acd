"""Conversations: recorded before they are acted on, never twice, and their cost is counted once."""

from __future__ import annotations

import pytest

from islands.store import StoreError

RUN = "run00000"


@pytest.fixture
def asked(store, make):
    """The store with attempt 4 open."""
    store.open_attempt(RUN, 4, 0, "diff")
    return store


def test_a_turn_comes_back_as_it_was_recorded(asked, make):
    asked.open_request(RUN, make.request())
    asked.add_reply(RUN, 4, 0, make.reply("```python\n```\x00"))
    turn = asked.find_turn(RUN, 4, 0)
    assert (turn.operator, turn.model, turn.worst_usd) == ("diff", "some/model", 0.02)
    assert turn.messages == ({"role": "user", "content": "make 4 faster"},)
    assert turn.parent_ids == (f"{RUN}-000000",) and turn.parameters == {"max_tokens": 100}
    assert turn.text.startswith("```python\n```") and turn.usage["cost_usd"] == 0.01
    assert turn.replied_at >= turn.opened_at


def test_asking_again_keeps_the_first_record(asked, make):
    asked.open_request(RUN, make.request())
    asked.open_request(RUN, make.request(messages=({"role": "user", "content": "something else"},)))
    assert asked.find_turn(RUN, 4, 0).messages[0]["content"] == "make 4 faster"


def test_a_second_reply_is_refused(asked, make):
    asked.open_request(RUN, make.request())
    asked.add_reply(RUN, 4, 0, make.reply())
    with pytest.raises(StoreError, match="record the reply"):
        asked.add_reply(RUN, 4, 0, make.reply("other"))


def test_a_reply_to_nothing_and_a_request_without_an_attempt_are_refused(asked, make):
    with pytest.raises(StoreError):
        asked.add_reply(RUN, 4, 0, make.reply())
    with pytest.raises(StoreError):
        asked.open_request(RUN, make.request(9))


def test_what_is_unanswered_belongs_to_an_open_attempt_and_has_no_reply(asked, make):
    asked.open_request(RUN, make.request())
    assert [turn.number for turn in asked.unanswered()] == [4]
    asked.add_reply(RUN, 4, 0, make.reply())
    assert asked.unanswered(RUN) == []
    asked.open_request(RUN, make.request(turn=1))
    asked.close_attempt(RUN, 4, "lost")
    assert asked.unanswered(RUN) == []


def test_a_further_try_may_cost_more_and_counts_until_it_is_settled_too(asked, make):
    asked.open_request(RUN, make.request())
    asked.open_request(RUN, make.request(worst_usd=0.04))
    assert [turn.worst_usd for turn in asked.unsettled(RUN)] == [0.04]
    asked.add_model_failure(RUN, 4, 0, kind="server", reason="500", usage={"cost_usd": 0.02})
    assert asked.unsettled(RUN) == []
    asked.open_request(RUN, make.request(worst_usd=0.03))
    assert [turn.worst_usd for turn in asked.unsettled(RUN)] == [0.03]


def test_what_a_killed_process_had_in_flight_is_unsettled_until_a_failure_is_recorded(asked, make):
    asked.open_request(RUN, make.request())
    assert [turn.worst_usd for turn in asked.unsettled(RUN)] == [0.02]
    asked.add_model_failure(RUN, 4, 0, kind="lost", reason="killed", usage={"cost_usd": 0.02})
    assert asked.unsettled(RUN) == []


def test_replies_and_failures_are_both_counted_and_outcomes_not_again(store, make):
    make.converse(store, RUN, 4)
    store.close_attempt(RUN, 4, "refused", usage={"prompt_tokens": 17, "completion_tokens": 5, "cost_usd": 0.03})
    counts = store.counts(RUN)
    assert (counts.prompt_tokens, counts.completion_tokens) == (17, 5)
    assert counts.cost_usd == pytest.approx(0.03)
    assert sorted(one.usage["cost_usd"] for one in store.spent(RUN)) == [0.01, 0.02]
    assert {(one.model, one.operator, one.island, one.number) for one in store.spent(RUN)} == {
        ("some/model", "diff", 0, 4)
    }
    assert all(one.at.endswith("+00:00") for one in store.spent(RUN))
