"""Searches in which a model proposes: recorded, capped, replayed, taken up again after a kill."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fitness.evaluation import Verdict
from fitness.replay import Failure, Landscape, Replay
from islands.store import Store, open_store
from kb_evolve.commands.run import estimate_lines, outcome_json, spent_text, with_prices
from kb_evolve.config import ConfigError, resolve
from kb_evolve.export.replies import export_replies
from kb_evolve.search import Outcome, Search
from problems.problem import Problem

NUMBER = re.compile(r"(constexpr int (\w+) = )\d+;")


class Person(threading.Thread):
    """Answers the questions in a folder: with the parent's program, one tunable changed; now and then with prose."""

    def __init__(self, folder: Path, seed_source: str) -> None:
        super().__init__(daemon=True)
        self.folder, self.seed_source = folder, seed_source
        self.answered: list[str] = []
        self.enough = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.enough.wait(0.005):
            for place in sorted(self.folder.glob("*-*/context.json")) if self.folder.exists() else ():
                reply = place.parent / "reply.md"
                if not reply.exists():
                    number = int(place.parent.name.split("-")[0])
                    text = answer(number, self.seed_source)
                    part = reply.with_suffix(".part")
                    part.write_text(text)
                    part.rename(reply)
                    self.answered.append(place.parent.name)


def answer(number: int, source: str) -> str:
    """A whole program with tunables that follow from the ticket; every fifth answer is prose."""
    if number % 5 == 0:
        return "I would rather not."
    values = (4, 8, 16, 32, 64, 128, 256, 512)
    changed = NUMBER.sub(lambda m: f"{m[1]}{values[(number * 3 + len(m[2])) % 8] + number};", source)
    return f"RATIONALE: other tile sizes for ticket {number}\n\n```python\n{changed}\n```\n"


@pytest.fixture
def person(tmp_path: Path, toy_problem: Problem) -> Iterator[Person]:
    assert toy_problem.seed is not None
    working = Person(tmp_path / "box", toy_problem.seed)
    yield working
    working.enough.set()
    working.join(5)


def search(problem: Problem, db: Path, **options: Any) -> Outcome:
    landscape = options.pop("landscape", Landscape())
    options = {"evaluations": 12, "run": "toy", "islands": 1, "mutators": ("rewrite",), **options}
    return Search(problem, db=str(db), workbench=Replay(landscape), **options).run()


def with_box(problem: Problem, tmp_path: Path, name: str = "kb.db", **options: Any) -> Outcome:
    box = {"model": ("mailbox",), "mailbox": str(tmp_path / "box")}
    return search(problem, tmp_path / name, **box, **options)


def opened(db: Path, outcome: Outcome) -> tuple[Store, str]:
    return open_store(db, read_only=True), outcome.run.id


def told(db: Path, outcome: Outcome) -> list[tuple[int, str]]:
    store, run_id = opened(db, outcome)
    with store:
        return [(entry.candidate.number, entry.candidate.source_sha256) for entry in store.history(run_id)]


def test_a_person_is_the_model_and_every_answer_is_recorded(
    tmp_path: Path, toy_problem: Problem, person: Person
) -> None:
    outcome = with_box(toy_problem, tmp_path)
    assert outcome.evaluations == 12 and outcome.attempts["refused"] >= 1
    store, run_id = opened(tmp_path / "kb.db", outcome)
    with store:
        turns, history = store.turns(run_id), store.history(run_id)
        attempts = store.attempts(run_id)
    made = [entry.candidate for entry in history if entry.candidate.generation > 0]
    assert {candidate.mutator for candidate in made} == {"rewrite"}
    assert {candidate.details["arm"] for candidate in made} == {"rewrite@mailbox"}
    assert all("other tile sizes" in candidate.rationale for candidate in made)
    by_number = {(turn.number, turn.turn): turn for turn in turns}
    assert all(by_number[candidate.number, 0].text for candidate in made)
    refused = [attempt for attempt in attempts if attempt.outcome == "refused"]
    assert all((attempt.number, 1) in by_number for attempt in refused), "a refused answer is asked for once more"


def test_replies_that_were_exported_drive_the_same_search_again(
    tmp_path: Path, toy_problem: Problem, person: Person
) -> None:
    first = with_box(toy_problem, tmp_path, in_order=True, lag=4)
    person.enough.set()
    store, run_id = opened(tmp_path / "kb.db", first)
    with store:
        file = export_replies(store.turns(run_id), tmp_path / "out")
    for name, thinkers in (("one.db", 1), ("eight.db", 8)):
        again = search(
            toy_problem, tmp_path / name, model=("mailbox",), replay=str(file), in_order=True, lag=4, thinkers=thinkers
        )
        assert told(tmp_path / name, again) == told(tmp_path / "kb.db", first)


def test_a_search_goes_on_with_the_question_that_was_open(tmp_path: Path, toy_problem: Problem) -> None:
    """Stopped while it waits for an answer; answered while nothing runs; the answer is used by the same command."""
    from kb_evolve.journal import StoreJournal
    from mutators.dialogue import Reply, Request

    db = tmp_path / "kb.db"
    first = with_box(toy_problem, tmp_path, minutes=0.02, evaluations=5)
    store, run_id = opened(db, first)
    with store:
        waiting = store.unanswered(run_id)
    assert waiting and toy_problem.seed is not None
    with open_store(db) as store:
        for turn in waiting:
            request = Request(turn.number, turn.turn, turn.operator, turn.model, ())
            StoreJournal(store, run_id).close(request, Reply(answer(turn.number, toy_problem.seed)))
    person = Person(tmp_path / "box2", toy_problem.seed)
    box = {"model": ("mailbox",), "mailbox": str(tmp_path / "box2")}
    outcome = search(toy_problem, db, minutes=5.0, evaluations=5, **box)
    person.enough.set()
    assert outcome.run.id == run_id
    numbers = {number for number, _ in told(db, outcome)}
    assert numbers & {turn.number for turn in waiting}
    answered_on_file = {int(name.split("-")[0]) for name in person.answered if name.endswith("-0")}
    assert not answered_on_file & {turn.number for turn in waiting}, "nothing was asked twice"


def test_what_a_stopped_search_had_in_flight_costs_its_worst_case(tmp_path: Path, toy_problem: Problem) -> None:
    from kb_evolve.journal import settle_lost

    outcome = search(toy_problem, tmp_path / "kb.db", mutators=("tune",), evaluations=3)
    with open_store(tmp_path / "kb.db") as store:
        run_id, number = outcome.run.id, store.next_number(outcome.run.id)
        store.open_attempt(run_id, number, 0, "diff")
        request = {"number": number, "turn": 0, "operator": "diff", "model": "dear", "island": 0, "parent_ids": ()}
        store.open_request(
            run_id, {**request, "messages": (), "prompt_version": "", "parameters": {}, "worst_usd": 0.25}
        )
        settle_lost(store, run_id)
        settle_lost(store, run_id)
        assert [one.usage["cost_usd"] for one in store.spent(run_id)] == [0.25]
        assert store.counts(run_id).cost_usd == 0.25


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mutators": ("diff",)}, "diff asks a language model: name one with --model"),
        ({"replay": "x.jsonl", "mutators": ("tune",)}, "name them too, with --model"),
        ({"model": ("m",), "replay": "nowhere.jsonl"}, "nowhere.jsonl does not exist"),
        ({"model": ("m",), "settings": {"n": {}}}, "names 'n', which no --model does"),
        ({"model": ("m",), "operators": ("dif",)}, "unknown operator 'dif'"),
        ({"model": ("m",), "settings": {"m": {"api_bse": "x"}}}, "api_bse"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_before_anything_is_opened(
    tmp_path: Path, toy_problem: Problem, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        search(toy_problem, tmp_path / "kb.db", **options)
    assert not (tmp_path / "kb.db").exists()


def test_questions_are_listed_printed_and_answered_on_the_command_line(tmp_path: Path, toy_problem: Problem) -> None:
    from click.testing import CliRunner

    from kb_evolve.cli import add_commands, cli

    add_commands()
    db = tmp_path / "kb.db"
    outcome = with_box(toy_problem, tmp_path, minutes=0.02)
    run = CliRunner()
    listed = json.loads(run.invoke(cli, ["ask", "--db", str(db), "--json"]).output)["questions"]
    assert listed and listed[0]["run"] == "toy" and listed[0]["operator"] == "rewrite"
    number = str(listed[0]["number"])
    assert "class ModelNew" in run.invoke(cli, ["ask", "toy", number, "--db", str(db)]).output
    (tmp_path / "reply.md").write_text("no")
    tell = ["tell", "toy", number, "--db", str(db), "--reply", str(tmp_path / "reply.md")]
    assert run.invoke(cli, tell).exit_code == 0
    again = run.invoke(cli, tell)
    assert again.exit_code == 2 and "does not wait" in again.output
    store, run_id = opened(db, outcome)
    with store:
        assert store.find_turn(run_id, int(number), 0).text == "no"


def test_waiting_threads_end_with_the_search(tmp_path: Path, toy_problem: Problem) -> None:
    before = threading.active_count()
    with_box(toy_problem, tmp_path, minutes=0.02)
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() <= before


class Beginner(Person):
    """Writes first kernels: the first ones do not compile, a repair is right."""

    def run(self) -> None:
        while not self.enough.wait(0.005):
            for place in sorted(self.folder.glob("*-*/context.json")) if self.folder.exists() else ():
                reply = place.parent / "reply.md"
                if not reply.exists():
                    operator = json.loads(place.read_text())["operator"]
                    number = int(place.parent.name.split("-")[0])
                    source = self.seed_source.replace("BLOCK = 4;", f"BLOCK = {8 + number};")
                    source = source if operator != "seed" else source.replace("CFLAGS", "BROKEN", 1)
                    part = reply.with_suffix(".part")
                    part.write_text(f"```python\n{source}\n```\n")
                    part.rename(reply)
                    self.answered.append(operator)


def test_a_problem_without_a_first_kernel_gets_one_from_the_model(tmp_path: Path, toy_problem: Problem) -> None:
    """Seeds fail, a repair of one is right, and every island starts from it."""
    assert toy_problem.seed is not None
    bare = Problem("bare", "bare", toy_problem.source)
    broken = Failure(r"BROKEN", Verdict.COMPILE_ERROR, at_build=True)
    person = Beginner(tmp_path / "box", toy_problem.seed)
    box = {"model": ("mailbox",), "mailbox": str(tmp_path / "box"), "mutators": ("repair", "tune")}
    outcome = search(bare, tmp_path / "kb.db", islands=2, landscape=Landscape(failures=(broken,)), **box)
    person.enough.set()
    assert outcome.stop == "budget" and outcome.best is not None
    assert {"seed", "repair"} <= set(person.answered)
    store, run_id = opened(tmp_path / "kb.db", outcome)
    with store:
        history = store.history(run_id)
    firsts = [entry for entry in history if entry.candidate.mutator == "seed"]
    assert firsts and all(entry.candidate.generation == 0 for entry in firsts)
    right = next(entry for entry in history if entry.evaluation.is_correct)
    assert right.candidate.mutator == "repair" and right.candidate.parent_ids
    assert {entry.candidate.island for entry in history if entry.evaluation.is_correct} == {0, 1}


def test_a_model_that_never_writes_a_correct_kernel_ends_the_run_with_the_reason(
    tmp_path: Path, toy_problem: Problem
) -> None:
    assert toy_problem.seed is not None
    bare = Problem("bare", "bare", toy_problem.source)
    person = Person(tmp_path / "box", toy_problem.seed)
    wrong = Failure(r".", Verdict.WRONG_RESULT)
    box = {"model": ("mailbox",), "mailbox": str(tmp_path / "box"), "mutators": ("repair",), "evaluations": 6}
    outcome = search(bare, tmp_path / "kb.db", landscape=Landscape(failures=(wrong,)), **box)
    person.enough.set()
    assert outcome.stop == "seed_failed" and "no model wrote a correct first kernel" in outcome.reason


def test_prices_of_the_command_line_join_the_files_settings(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[models]\nmodel = ["openai/x"]\n[models.settings."openai/x"]\nretries = 1\n')
    assert with_prices(str(file), ("openai/x=3,15",)) == {
        "openai/x": {"retries": 1, "price_in": 3e-6, "price_out": 1.5e-5}
    }
    assert with_prices(str(file), ()) is None


@pytest.mark.parametrize("price", ["3,15", "m=3", "m=a,b", "=1,2"])
def test_a_price_that_says_too_little_is_refused(price: str) -> None:
    with pytest.raises(ConfigError, match="NAME=IN,OUT in USD per million"):
        with_prices(None, (price,))


def test_an_estimate_is_given_before_the_run_and_unknown_prices_are_said_to_be_unknown() -> None:
    layer = {"models": {"model": ("openai/nobody-knows", "openai/priced")}, "budget": {"evaluations": 10}}
    layer["models"]["settings"] = {"openai/priced": {"price_in": 1e-6, "price_out": 2e-6}}
    unknown, priced = estimate_lines(resolve(layer))
    assert "5 requests to openai/nobody-knows" in unknown and "price unknown" in unknown
    assert "$0.14 to $0.64" in priced


def test_what_was_spent_is_told_by_model_and_operator(tmp_path: Path, toy_problem: Problem, person: Person) -> None:
    outcome = with_box(toy_problem, tmp_path, evaluations=4)
    assert outcome.spent is not None
    assert spent_text(outcome.spent) == "Models: no paid requests."
    text = spent_text({**outcome.spent, "requests": 3, "by_operator": {"diff": {"cost_usd": 0.25}}})
    assert text.startswith("Models: 3 requests") and "by operator: diff $0.2500" in text
    assert outcome_json(outcome)["models"]["max_usd"] is None


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("nope", {}, "no provider of 'nope' is known: write PROVIDER/NAME, as openai/nope"),
        ("openai/gpt-5", {}, "openai/gpt-5 needs a key in OPENAI_API_KEY, which is not set"),
        ("openai/x", {"api_key_env": "NO_SUCH_KEY"}, "openai/x needs a key in NO_SUCH_KEY, which is not set"),
    ],
)
def test_a_model_that_surely_cannot_be_asked_is_refused_before_the_run(
    name: str,
    settings: dict[str, str],
    reason: str,
    tmp_path: Path,
    toy_problem: Problem,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    db = tmp_path / "kb.db"
    with pytest.raises(ConfigError, match=re.escape(reason)):
        Search(toy_problem, db=str(db), model=(name,), settings={name: settings}, workbench=Replay(Landscape())).run()
    assert not db.exists()
