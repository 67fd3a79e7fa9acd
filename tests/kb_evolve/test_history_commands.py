"""`runs`, `top` and `show` fit a terminal, obey no candidate's words, and read no whole history."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fitness.replay import Landscape, Replay
from islands.store import Store, open_store
from kb_evolve.cli import add_commands, cli
from kb_evolve.commands.tables import age_text, fitted, spelled
from kb_evolve.search import Search
from problems.problem import Problem

EVIL = "\x1b[31m\x1b]0;owned\x07\u202egnp.exe\r<b>\u200b"
HIDDEN = ("\x1b", "\x07", "\u202e", "\u200b", "\r")


class Evil(Replay):
    """Its judgements hold a terminal's escapes and marks that reverse text."""

    def measure(self, *arguments: Any) -> Any:
        return dataclasses.replace(super().measure(*arguments), log=f"log {EVIL}", reason=f"reason {EVIL}")


@pytest.fixture(scope="module")
def searched(memory_dir: Path, toy_problem: Problem) -> tuple[Path, Any]:
    """A database with one run, and its outcome."""
    db = memory_dir / "history.db"
    outcome = Search(
        toy_problem, db=str(db), run="night", workbench=Evil(Landscape()), evaluations=20, mutators=("tune",)
    ).run()
    return db, outcome


def kb(*words: object) -> str:
    if not cli.commands:
        add_commands()
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def on_terminal(width: int, *words: object, **environment: str) -> str:
    """What a real process prints on a terminal of that width."""
    main, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kb_evolve", *map(str, words)],
        stdout=child,
        stderr=child,
        env={**os.environ, "COLUMNS": str(width), **environment},
        cwd=Path(__file__).resolve().parents[2],
    )
    os.close(child)
    shown = b""
    while chunk := _read(main):
        shown += chunk
    os.close(main)
    assert process.wait(60) == 0, shown
    return shown.decode().replace("\r\n", "\n")


def _read(main: int) -> bytes:
    try:
        return os.read(main, 65536)
    except OSError:  # Linux's answer once the other end is closed
        return b""


def test_runs_says_who_works_on_what_and_how_far_it_came(searched: tuple[Path, Any]) -> None:
    db, outcome = searched
    (entry,) = json.loads(kb("runs", "--db", db, "--json"))["runs"]
    assert entry["status"] == "done" and "20" in entry["status_reason"]
    assert entry["evaluations"] == 20 and entry["best"] == outcome.best.candidate.id
    assert sum(entry["verdicts"].values()) == sum(outcome.verdicts.values()) and entry["age_s"] >= 0
    header, row = kb("runs", "--db", db).splitlines()
    assert header.split() == ["run", "status", "problem", "device", "best", "judged", "age"], "no dollars, no column"
    assert row.split()[:4] == ["night", "done", "toy", "cpu"]
    low, high = outcome.best.evaluation.speedup_ci
    assert f"{outcome.best.evaluation.speedup:.3g}x [{low:.3g}, {high:.3g}]" in row


def test_a_killed_run_is_dead_and_the_list_says_what_to_do(tmp_path: Path, searched: tuple[Path, Any]) -> None:
    db = tmp_path / "kb.db"
    db.write_bytes(searched[0].read_bytes())
    with open_store(db) as store:
        store.add_event(store.runs()[0].id, "started", {"config": {}})
    if not cli.commands:
        add_commands()
    result = CliRunner().invoke(cli, ["runs", "--db", str(db)])
    assert " dead " in result.stdout and "the same command goes on" in result.stderr


@pytest.mark.parametrize("width", [80, 120])
def test_lists_fit_the_terminal_and_color_nothing(searched: tuple[Path, Any], width: int) -> None:
    db, outcome = searched
    for words in (("runs",), ("top", "--limit", 3)):
        shown = on_terminal(width, *words, "--db", db, NO_COLOR="1", TERM="dumb")
        assert max(map(len, shown.splitlines())) <= width and "\x1b" not in shown
    assert outcome.best.candidate.id in shown


def test_show_gives_figures_times_lineage_and_the_change_and_hides_nothing(searched: tuple[Path, Any]) -> None:
    db, outcome = searched
    shown = on_terminal(80, "show", "night", "--db", db)
    best = outcome.best
    for part in (best.candidate.id, "the elite of its run", "speedup", "asked 20", "lineage:", "changed in", "+const"):
        assert part in shown
    assert all(mark not in shown for mark in HIDDEN) and "\\u202e" in shown


def test_show_prints_one_text_whole_exactly_into_a_pipe_and_spelled_on_a_terminal(searched: tuple[Path, Any]) -> None:
    db, outcome = searched
    best = outcome.best
    assert kb("show", best.candidate.id, "--db", db, "--source") == best.candidate.source
    assert kb("show", best.candidate.id, "--db", db, "--log") == f"log {EVIL}\n"
    assert "-constexpr int" in kb("show", best.candidate.id, "--db", db, "--diff")
    assert "asks no model" in kb("show", best.candidate.id, "--db", db, "--prompt")
    spelled_log = on_terminal(80, "show", best.candidate.id, "--db", db, "--log")
    assert all(mark not in spelled_log for mark in HIDDEN) and "\\x1b[31m" in spelled_log


def test_show_as_json_has_times_source_and_lineage(searched: tuple[Path, Any]) -> None:
    db, outcome = searched
    shown = json.loads(kb("show", "night", "--db", db, "--json"))
    assert shown["source"] == outcome.best.candidate.source and shown["lineage"][-1]["id"] == shown["id"]
    assert shown["opened_at"] <= shown["added_at"] <= shown["told_at"]


def test_runs_top_and_show_read_no_whole_history(searched: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a whole history was read")

    for name in ("history", "stream", "attempts", "events"):
        monkeypatch.setattr(Store, name, refuse)
    db, _ = searched
    for words in (("runs",), ("runs", "--json"), ("top",), ("top", "--json"), ("show", "night")):
        assert kb(*words, "--db", db)


def test_a_table_cuts_what_may_be_cut_then_leaves_out_what_may_lack(make_table: Callable[[int | None], str]) -> None:
    assert make_table(None).splitlines()[1] == "a-long-name  1.5x  a-longer-problem  cpu"
    assert make_table(36).splitlines()[1] == "a-long-name  1.5x  a-longer-pr…  cpu"
    assert make_table(26).splitlines()[1] == "a-lon…  1.5x  a-long…  cpu"
    assert make_table(22).splitlines()[1] == "a-long…  1.5x  a-long…"
    assert make_table(5).splitlines()[1] == "a-lo…  1.5x  a-lo…", "what must be there stays"


@pytest.fixture
def make_table() -> Callable[[int | None], str]:
    def make(width: int | None) -> str:
        row = ("a-long-name", "1.5x", "a-longer-problem", "cpu")
        return fitted(("run", "best", "problem", "dev"), [row], width, shrink={"run": 5, "problem": 5}, drop=("dev",))

    return make


def test_wide_characters_count_twice() -> None:
    table = fitted(("run", "n"), [("核函数核函数", 1), ("x", 2)], 12, shrink={"run": 4})
    assert table.splitlines()[1:] == ["核函数核…  1", "x          2"], "a wide character fills two places"


def test_a_long_text_is_spelled_whole() -> None:
    text = "a" * 5_000 + EVIL + "\n" + "b" * 5_000
    shown = spelled(text)
    assert shown.startswith("a" * 5_000) and shown.endswith("\n" + "b" * 5_000)
    assert all(mark not in shown for mark in HIDDEN)


def test_ages_are_short() -> None:
    assert [age_text(s) for s in (-3, 61, 200, 8_000, 200_000)] == ["0 s", "61 s", "3 min", "2 h", "2 d"]
