"""A session in which a mailbox drove a search, replayed: its replies are read, applied or refused, and judged."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from fitness.evaluation import Verdict
from fitness.replay import Failure, Landscape, Replay
from islands.store import open_store
from kb_evolve.search import Outcome, Search
from mutators.replay import read_replies

SESSION = Path(__file__).resolve().parents[2] / "experiments" / "mailbox"
PROBLEM = "causal_attention"
NO_HEADER = Failure(r"(?s)\A(?!.*#include <bit>).*std::bit_cast", Verdict.COMPILE_ERROR, at_build=True)
"""What the real compiler said of one reply: it forgot a header."""


def replayed(db: Path) -> Outcome:
    """The search of the session's own configuration, with its replies, on scripted times."""
    folder = SESSION / PROBLEM
    with Replay(Landscape(failures=(NO_HEADER,))) as workbench:
        search = Search(
            PROBLEM,
            config=folder / "config.toml",
            workbench=workbench,
            db=str(db),
            replay=str(folder / "replies.jsonl"),
        )
        return search.run()


def asked(db: Path) -> dict[int, tuple[str, str, str]]:
    """Per ticket that a reply was recorded for: operator, outcome and reason."""
    numbers = {number for number, *_ in read_replies(SESSION / PROBLEM / "replies.jsonl")}
    with open_store(db, read_only=True) as store:
        attempts = store.attempts(store.runs()[0].id)
        return {one.number: (one.mutator, one.outcome, one.reason) for one in attempts if one.number in numbers}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A replay's database and outcome."""
    db = tmp_path_factory.mktemp("session") / "one.db"
    return db, replayed(db)


def test_the_recorded_replies_drive_the_search_again_without_a_person(one: tuple[Path, Outcome]) -> None:
    db, outcome = one
    answers = asked(db)
    kinds = Counter(kind for _, kind, _ in answers.values())
    assert kinds["candidate"] * 2 >= len(answers) > 4, answers
    assert outcome.verdicts[Verdict.COMPILE_ERROR] >= 1
    assert outcome.best is not None and outcome.first is not None
    assert (outcome.best.evaluation.speedup or 0.0) > (outcome.first.evaluation.speedup or 0.0) > 0.0


def test_two_replays_are_the_same_step_by_step(one: tuple[Path, Outcome], tmp_path: Path) -> None:
    replayed(tmp_path / "two.db")
    assert asked(one[0]) == asked(tmp_path / "two.db")


@pytest.mark.parametrize("folder", sorted(SESSION.glob("*/config.toml")), ids=lambda path: path.parent.name)
def test_every_reply_was_written_for_a_ticket_and_names_what_it_tries(folder: Path) -> None:
    lines = (folder.parent / "replies.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    assert all(one["model"] == "mailbox" and one["reply"]["text"].startswith("RATIONALE: ") for one in entries)
    result = json.loads((folder.parent / "result.json").read_text(encoding="utf-8"))
    assert result["replies"] == len(entries)
