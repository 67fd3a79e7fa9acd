"""What people meet in their first hour: lists and answers fit their terminal, errors say what to do next."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from fitness.evaluation import Job
from fitness.replay import Replay
from islands.candidate import Candidate, Evaluated
from islands.store import open_store
from kb_evolve.cli import add_commands, cli
from kb_evolve.commands.run import summary
from kb_evolve.commands.shared import CHANGE_LINES, lineage_text
from kb_evolve.commands.tables import wrapped
from kb_evolve.config import FIXED, SECTIONS, Config
from kb_evolve.live import STOPPING, Progress, progress_line
from kb_evolve.loop import GRACE_S
from kb_evolve.search import Search
from problems.problem import Problem

EVIL = "\x1b[31m\x1b]0;owned\x07\u202egnp.exe"
HIDDEN = ("\x1b", "\x07", "\u202e")


class Evil(Replay):
    """Its judgements hold a terminal's escapes and marks that reverse text."""

    def measure(self, *arguments: Any) -> Any:
        return dataclasses.replace(super().measure(*arguments), reason=f"reason {EVIL}")


@pytest.fixture(autouse=True)
def commands() -> None:
    if not cli.commands:
        add_commands()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Makes the commands' standard output a terminal of so many columns."""

    def become(width: int) -> None:
        monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(width))

    yield become


def kb(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def evaluated(rationale: str) -> Evaluated:
    candidate = Candidate("r-000001", 1, 0, 1, "cpp", "x = 1", mutator="diff", rationale=rationale)
    return Evaluated(candidate, Replay().evaluate(Job(problem="toy", problem_source="", source="x = 1")))


def test_a_text_is_wrapped_behind_its_head_and_cut_after_so_many_lines() -> None:
    text = "one two three four five six seven eight nine ten"
    assert wrapped("head  ", text, None) == f"head  {text}"
    assert wrapped("head  ", text, 34).splitlines() == [
        "head  one two three four five six",
        "      seven eight nine ten",
    ]
    assert wrapped("head  ", text, 34, 1) == "head  one two three four five …"
    assert wrapped("a long head  ", text, 30).splitlines()[:2] == ["a long head", "    one two three four five"]
    assert wrapped("head  ", "", 34) == "head  "
    assert "-fno-trapping-math" in wrapped("", "compile with -fno-trapping-math", 20).splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_a_lineage_fits_the_terminal_and_obeys_no_rationale(width: int) -> None:
    step = evaluated(f"{EVIL} " + "use wider loads; " * 60)
    lines = lineage_text([step, step], width).splitlines()
    assert len(lines) == 2 * CHANGE_LINES and max(map(len, lines)) <= width and lines[-1].endswith("…")
    piped = lineage_text([step], None)
    assert "\n" not in piped and all(mark not in piped for mark in HIDDEN) and "\\x1b" in piped


@pytest.mark.parametrize("width", [80, 120])
def test_figures_and_fronts_fit_the_terminal(
    tmp_path: Path, toy_problem: Problem, terminal: Callable[[int], None], width: int
) -> None:
    db = tmp_path / "kb.db"
    Search(toy_problem, db=str(db), run="night-" * 12, workbench=Replay(), evaluations=3, mutators=("tune",)).run()
    terminal(width)
    for words in (("show", "night-" * 12), ("top", "--pareto"), ("top",), ("runs",), ("fastp",)):
        shown = kb(*words, "--db", db)
        assert shown.exit_code == 0 and shown.stdout
        assert max(map(len, shown.stdout.splitlines()[1:])) <= width, f"{words}\n{shown.stdout}"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_list_of_problems_fits_the_terminal_and_is_whole_in_a_pipe(
    terminal: Callable[[int], None], width: int
) -> None:
    whole = kb("problems", "list").stdout
    assert "…" not in whole
    terminal(width)
    assert max(map(len, kb("problems", "list").stdout.splitlines())) <= width


def test_eval_spells_a_candidates_escapes_on_a_terminal_and_keeps_them_in_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Callable[[int], None]
) -> None:
    monkeypatch.setattr("kb_evolve.judging.open_workbench", lambda config: Evil())
    kernel = tmp_path / "kernel.py"
    kernel.write_text("class ModelNew: pass\n")
    assert EVIL in kb("eval", kernel, "--problem", "softmax").stdout
    terminal(80)
    shown = kb("eval", kernel, "--problem", "softmax").stdout
    assert all(mark not in shown for mark in HIDDEN) and "\\x1b[31m" in shown


def test_a_question_is_printed_as_json_where_that_is_asked_and_spelled_on_a_terminal(
    tmp_path: Path, toy_problem: Problem, terminal: Callable[[int], None]
) -> None:
    db = tmp_path / "kb.db"
    outcome = Search(toy_problem, db=str(db), run="night", workbench=Replay(), evaluations=1).run()
    with open_store(db) as store:
        store.open_attempt(outcome.run.id, 90, 0, "diff")
        message = {"role": "user", "content": f"Make it faster {EVIL}"}
        place = {"number": 90, "turn": 0, "operator": "diff", "model": "mailbox", "island": 0, "parent_ids": ()}
        asked = {"messages": (message,), "prompt_version": "1", "parameters": {}, "worst_usd": 0.0}
        store.open_request(outcome.run.id, place | asked)
    (question,) = json.loads(kb("ask", "night", 90, "--db", db, "--json").stdout)["questions"]
    assert question["number"] == 90 and question["messages"] == [message]
    assert EVIL in kb("ask", "night", 90, "--db", db).stdout
    terminal(60)
    shown = kb("ask", "night", 90, "--db", db).stdout
    assert all(mark not in shown for mark in HIDDEN) and "\\x1b[31m" in shown
    assert max(map(len, kb("ask", "--db", db).stdout.splitlines())) <= 60


def test_importing_what_is_not_there_says_what_can_be_imported(tmp_path: Path) -> None:
    for name in ("none.db", "none.py", "none"):
        result = kb("import", tmp_path / name, "--problem", "softmax", "--db", tmp_path / "kb.db")
        assert result.exit_code == 2 and f"there is no {tmp_path / name}: name a database, a bundle" in result.stderr


def test_a_report_names_its_page_and_counts_its_figures(tmp_path: Path, toy_problem: Problem) -> None:
    db, out = tmp_path / "kb.db", tmp_path / "report"
    Search(toy_problem, db=str(db), run="night", workbench=Replay(), evaluations=1).run()
    page, pictures = kb("report", "night", "--db", db, "--out", out).stdout.splitlines()
    assert page == str(out / "index.html") and f" {len(list(out.iterdir())) - 1} pictures" in pictures


def test_the_next_commands_name_the_database_of_the_configuration_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def stop(ref: str, config: str | None, options: dict[str, Any], quiet: bool) -> None:
        asked.update(options)
        raise click.exceptions.Exit(0)

    monkeypatch.setattr("kb_evolve.commands.run.search_one", stop)
    config = tmp_path / "night.toml"
    config.write_text('[run]\nproblem = "softmax"\ndb = "night.db"\n')
    kb("run", "--config", config)
    assert asked["db"] == "night.db"
    kb("run", "--config", config, "--db", "other.db")
    assert asked["db"] == "other.db", "a flag overrides the file"


def test_a_line_says_that_the_budget_is_used_and_who_is_asked() -> None:
    progress = Progress(run="night", problem="toy", evaluations=7, attempts=9, elapsed_s=120.0, eta_s=0.0, thinking=2)
    assert progress_line(progress).endswith("thinking 2 | the budget is used: what is in flight ends")


def test_a_kernel_of_no_model_says_where_the_answers_of_models_are(tmp_path: Path, toy_problem: Problem) -> None:
    db = tmp_path / "kb.db"
    Search(toy_problem, db=str(db), run="night", workbench=Replay(), evaluations=1).run()
    shown = kb("show", "night", "--prompt", "--db", db).stdout
    assert "asks no model" in shown and "kb-evolve export night --format replies" in shown


def test_the_page_on_configuration_files_has_every_key_with_its_default_and_what_a_run_keeps() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    sections = re.split(r"^## \[(\w+)\]$", text, flags=re.MULTILINE)[1:]
    row = re.compile(r"^\| `(\w+)`( \*)? \| (?:`(.*?)`|[^`|]+) \| .+ \|$", flags=re.MULTILINE)
    rows = {name: row.findall(body) for name, body in zip(sections[::2], sections[1::2], strict=True)}
    assert list(rows) == list(SECTIONS)
    for section, found in rows.items():
        values = dataclasses.asdict(getattr(Config(), section))
        assert [row[0] for row in found] == list(values)
        assert [row[0] for row in found if row[1]] == [key for key in values if key in FIXED.get(section, ())]
        written = tomllib.loads("\n".join(f"{row[0]} = {row[2]}" for row in found if row[2]))
        known = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        assert written == {key: value for key, value in known.items() if value is not None}


def test_a_misspelt_folder_of_results_and_a_backup_that_is_not_there_are_called_so(
    tmp_path: Path, toy_problem: Problem
) -> None:
    db = tmp_path / "kb.db"
    Search(toy_problem, db=str(db), run="night", workbench=Replay(), evaluations=1).run()
    fastp = kb("fastp", tmp_path / "runz", "--db", db)
    assert fastp.exit_code == 2 and f"there is no folder {tmp_path / 'runz'}, and " in fastp.stderr
    assert "its runs: night" in fastp.stderr
    restore = kb("db", "restore", tmp_path / "none.db", "--db", db)
    assert restore.exit_code == 2 and "name a file that `kb-evolve db backup` wrote" in restore.stderr


def test_the_word_on_stopping_names_the_time_that_a_measurement_has() -> None:
    assert f"waiting {GRACE_S:g} s for the measurement" in STOPPING


def test_a_run_with_open_questions_for_a_person_ends_with_the_command_that_lists_them(
    tmp_path: Path, toy_problem: Problem
) -> None:
    db = str(tmp_path / "kb.db")
    outcome = Search(toy_problem, db=db, run="night", workbench=Replay(), evaluations=1).run()
    assert "kb-evolve ask" not in summary(outcome, db)
    candidates = sum(outcome.verdicts.values())
    assert f"; {candidates} candidate" in summary(outcome, db)
    run = dataclasses.replace(outcome.run, config={**outcome.run.config, "models": {"model": ["mailbox"]}})
    waiting = dataclasses.replace(outcome, run=run, attempts={**outcome.attempts, "open": 2})
    assert summary(waiting, db).endswith(f"kb-evolve ask night --db {db}")
