"""The mailbox: questions wait in journal and folder, and whoever answers first is heard."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from memory_journal import MemoryJournal, request

from mutators.dialogue import ModelError, Reply
from mutators.mailbox import Mailbox


class Asking(threading.Thread):
    """Somebody who waits for an answer."""

    def __init__(self, box: Mailbox, number: int = 3) -> None:
        super().__init__(daemon=True)
        self.box, self.number = box, number
        self.reply: Reply | None = None
        self.error: ModelError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.reply = self.box.ask(request(self.number))
        except ModelError as error:
            self.error = error


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_answer_in_the_folder_is_recorded_and_returned(tmp_path: Path) -> None:
    journal = MemoryJournal()
    asking = Asking(Mailbox(journal, tmp_path, poll_s=0.01))
    place = tmp_path / "000003-0"
    until(lambda: (place / "prompt.md").exists())
    assert "make it faster" in (place / "prompt.md").read_text()
    assert json.loads((place / "context.json").read_text())["operator"] == "rewrite"
    (place / "reply.md").write_text("```python\nx = 1\n```\n")
    asking.join(5)
    assert asking.reply is not None and "x = 1" in asking.reply.text
    assert journal.replies[3, 0] == asking.reply and asking.reply.usage.cost_usd == 0.0


def test_an_answer_that_is_still_being_written_is_not_taken_in_half(tmp_path: Path) -> None:
    asking = Asking(Mailbox(MemoryJournal(), tmp_path, poll_s=0.05))
    place = tmp_path / "000003-0" / "reply.md"
    until(place.parent.exists)
    with place.open("w") as file:
        for number in range(20):
            file.write(f"line {number}\n")
            file.flush()
            time.sleep(0.01)
    asking.join(5)
    assert asking.reply is not None and asking.reply.text.endswith("line 19\n")


def test_an_answer_in_the_journal_is_enough() -> None:
    journal = MemoryJournal()
    asking = Asking(Mailbox(journal, poll_s=0.01))
    until(lambda: journal.requests)
    journal.replies[3, 0] = Reply("told")
    asking.join(5)
    assert asking.reply == Reply("told")


def test_a_recorded_answer_is_given_again_without_a_question(tmp_path: Path) -> None:
    journal = MemoryJournal()
    journal.replies[3, 0] = Reply("told before")
    assert Mailbox(journal, tmp_path).ask(request()).text == "told before"
    assert list(tmp_path.iterdir()) == [] and journal.requests == {}


def test_the_question_stays_open_when_the_run_stops(tmp_path: Path) -> None:
    journal = MemoryJournal()
    box = Mailbox(journal, tmp_path, poll_s=0.01)
    asking = Asking(box)
    until(lambda: journal.requests)
    box.close()
    asking.join(5)
    assert asking.error is not None and asking.error.kind == "cancelled"
    assert journal.failures == [] and (tmp_path / "000003-0" / "prompt.md").exists()


def test_two_questions_have_two_places(tmp_path: Path) -> None:
    box = Mailbox(MemoryJournal(), tmp_path, poll_s=0.01)
    asking = [Asking(box, number) for number in (3, 4)]
    for number in (4, 3):
        place = tmp_path / f"{number:06d}-0"
        until(place.exists)
        (place / "reply.md").write_text(f"for {number}")
    for one in asking:
        one.join(5)
    assert [one.reply and one.reply.text for one in asking] == ["for 3", "for 4"]


@pytest.mark.parametrize("data", [b"\xff\xfe rubbish", b"\x00" * 10])
def test_an_answer_of_rubbish_is_text_all_the_same(tmp_path: Path, data: bytes) -> None:
    asking = Asking(Mailbox(MemoryJournal(), tmp_path, poll_s=0.01))
    place = tmp_path / "000003-0"
    until(place.exists)
    (place / "reply.md").write_bytes(data)
    asking.join(5)
    assert asking.reply is not None and isinstance(asking.reply.text, str)
