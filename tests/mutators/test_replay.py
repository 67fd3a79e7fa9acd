"""Recorded replies answer for their model, once, and cost nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_journal import MemoryJournal, request

from mutators.dialogue import ModelError, Reply
from mutators.proposal import ProposalError, Usage
from mutators.replay import Recorded, entry_of, read_replies, write_replies


def written(path: Path) -> Path:
    dear = Reply("a", "because", "length", Usage("some/model", 10, 20, 0.5, 3.0))
    entries = [
        entry_of(number=3, turn=0, operator="diff", model="some/model", reply=dear),
        entry_of(number=3, turn=1, operator="diff", model="some/model", reply=Reply("b\u2028c")),
    ]
    assert write_replies(path, entries) == 2
    return path


def test_a_reply_comes_back_word_for_word_and_free_of_charge(tmp_path: Path) -> None:
    replies = read_replies(written(tmp_path / "r.jsonl"))
    journal = MemoryJournal()
    reply = Recorded("some/model", replies, journal).ask(request(3, 0, "some/model"))
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("a", "because", "length")
    assert reply.usage.cost_usd == 0.0 and journal.replies[3, 0] == reply
    assert replies[3, 1, "some/model"].text == "b\u2028c"


def test_what_was_not_recorded_is_a_failure_that_says_what_is_missing(tmp_path: Path) -> None:
    journal = MemoryJournal()
    model = Recorded("other", read_replies(written(tmp_path / "r.jsonl")), journal)
    with pytest.raises(ModelError, match="no reply of other to turn 0 of ticket 3"):
        model.ask(request(3, 0, "other"))
    assert len(journal.failures) == 1


def test_the_end_of_the_record_is_an_end_of_the_budget(tmp_path: Path) -> None:
    model = Recorded("some/model", read_replies(written(tmp_path / "r.jsonl")), MemoryJournal())
    with pytest.raises(ModelError, match="the record ends with ticket 3") as caught:
        model.ask(request(4, 0, "some/model"))
    assert caught.value.kind == "budget"


@pytest.mark.parametrize("line", ["{", "[]", '{"number": 1}', '{"number":1,"turn":0,"model":"m","reply":{"text":3}}'])
def test_a_file_of_something_else_is_refused_with_the_line(tmp_path: Path, line: str) -> None:
    path = written(tmp_path / "r.jsonl")
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ProposalError, match=r"line 3: expected .* --format replies"):
        read_replies(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProposalError, match="nowhere"):
        read_replies(tmp_path / "nowhere.jsonl")
