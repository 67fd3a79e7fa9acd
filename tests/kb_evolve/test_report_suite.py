"""Several problems: fast_p, geometric means, other baselines, the overview page, and the command itself."""

from __future__ import annotations

import importlib
import json
import math
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from report_makers import a_run, evaluated

from fitness.replay import Landscape, Replay
from islands.elite import TWO_SIDED_95
from islands.store import open_store
from kb_evolve.cli import add_commands, cli
from kb_evolve.config import ConfigError
from kb_evolve.report import curves, operators, overview, suite
from kb_evolve.report.build import render
from kb_evolve.report.record import read_record
from kb_evolve.report.warnings import warnings_of
from kb_evolve.search import Search
from problems.problem import Problem

add_commands()

COMPILE = {"problem": "b", "kind": "compile", "speedup_vs_eager": 2.0, "speedup_vs_eager_ci": [1.9, 2.1]}


def entry(problem: str, speedup: float | None, baselines: Any = (), name: str = "", **fields: Any) -> suite.Entry:
    """The only correct candidate of a run of its own, or a run without one."""
    run = a_run(problem_id=problem, problem_sha256=problem * 64, name=name or f"run-{problem}", **fields)
    return suite.entry_of(run, [evaluated(0, speedup)], baselines)


FOUND = suite.best_entries([entry("a", 0.5), entry("b", 1.5, [COMPILE]), entry("c", 4.0), entry("d", None)])


def test_fast_p_is_the_share_of_all_problems_at_least_p_times_as_fast() -> None:
    eager, compiled = suite.fast_p(FOUND)
    assert (eager.baseline, eager.problems, eager.missing) == ("eager", 4, 0)
    assert [eager.at(p) for p in (0, 0.5, 0.51, 1.0, 1.5, 2.0, 4.0, 4.1)] == [0.75, 0.75, 0.5, 0.5, 0.5, 0.25, 0.25, 0]
    assert eager.lows == pytest.approx((0.49, 1.47, 3.92)) and eager.highs == pytest.approx((0.51, 1.53, 4.08))
    assert (compiled.baseline, compiled.problems, compiled.missing) == ("compile", 4, 2)
    assert [compiled.at(p) for p in (0.5, 0.75, 0.8)] == [0.25, 0.25, 0], "1.5 over eager is 0.75 over compile"


def test_a_speedup_over_another_baseline_carries_the_errors_of_both() -> None:
    centre, low, high = entry("b", 1.5, [COMPILE]).speedups["compile"]
    errors = [math.log(1.02 / 0.98), math.log(2.1 / 1.9)]
    width = math.exp(math.hypot(*errors) / 2)
    assert (centre, low, high) == pytest.approx((0.75, 0.75 / width, 0.75 * width))
    elsewhere = [{**COMPILE, "device_name": "Some GPU"}, {**COMPILE, "problem": "c"}, {**COMPILE, "kind": "eager"}]
    assert list(entry("b", 1.5, elsewhere).speedups) == ["eager"], "another device, another problem, the run's own"


def test_the_geometric_mean_has_an_interval_of_measurement_and_one_over_problems() -> None:
    (mean, _) = suite.means(FOUND)
    assert mean.mean == pytest.approx((0.5 * 1.5 * 4.0) ** (1 / 3)) and mean.problems == 3
    error = math.log(1.02 / 0.98) / (2 * TWO_SIDED_95) / math.sqrt(3)
    assert mean.measured[1] / mean.mean == pytest.approx(math.exp(TWO_SIDED_95 * error))
    assert mean.resampled is None, "three problems are too few"
    (many,) = suite.means([entry(chr(97 + number), 1.0 + number % 5) for number in range(20)])
    assert many.resampled is not None and many.resampled[0] < many.measured[0] < many.mean < many.resampled[1]
    (same,) = suite.means([entry(letter, 2.0) for letter in "abcdef"])
    assert same.resampled == pytest.approx((2.0, 2.0))


def test_of_several_runs_the_one_with_the_highest_lower_bound_stands_for_the_problem() -> None:
    lucky = suite.entry_of(a_run(name="lucky", problem_sha256="a" * 64), [evaluated(0, 2.0, spread=0.5)])
    sure = suite.entry_of(a_run(name="sure", problem_sha256="a" * 64), [evaluated(0, 1.5)])
    none = suite.entry_of(a_run(name="none", problem_sha256="a" * 64), [])
    other = suite.entry_of(a_run(name="bf16", problem_sha256="a" * 64, precision="bf16"), [evaluated(0, 1.0)])
    assert [one.run_name for one in suite.best_entries([none, lucky, sure, other])] == ["bf16", "sure"], (
        "precisions are kept apart"
    )


def test_a_problem_on_which_nothing_was_measured_counts_as_unsolved_where_the_others_are() -> None:
    nothing = suite.entry_of(a_run(name="none", problem_sha256="z" * 64), [])
    failed = suite.entry_of(a_run(name="bad", problem_sha256="y" * 64), [evaluated(0, device_name="")])
    (eager,) = suite.fast_p(suite.best_entries([nothing, failed, entry("a", 2.0), entry("b", 3.0)]))
    assert (eager.problems, eager.at(1.0), eager.setting.device_name) == (4, 0.5, "Some CPU")
    (alone,) = suite.fast_p(suite.best_entries([nothing]))
    assert (alone.setting.device_name, alone.at(0)) == ("no device used yet", 0.0)


def test_the_figure_draws_the_fold_s_numbers() -> None:
    axes = overview.fast_p(FOUND).axes[0]
    curves = suite.fast_p(FOUND)
    lines = {str(line.get_label()): line for line in axes.lines}
    for curve in curves:
        xs, shares = lines[f"over {curve.baseline}"].get_data()
        assert set(curve.speedups) <= set(xs)
        assert list(shares) == [curve.at(x) for x in xs]
    assert overview.fast_p([entry("d", None)]).axes[0].texts[-1].get_text() == "no problem has a correct kernel yet"


def test_hostile_names_are_shown_harmlessly(tmp_path: Path) -> None:
    hostile = "</td><script>alert(1)</script>\x1b[2J\u202e"
    fields = {"device": hostile, "backend": hostile, "precision": hostile}
    run = a_run(problem_id=hostile, name=hostile, **fields)
    entries = [suite.entry_of(run, [evaluated(0, 2.0, device_name=hostile, baseline=hostile)])]
    page = overview.write_overview(entries, {hostile: [hostile]}, tmp_path)["index.html"].read_text(encoding="utf-8")
    assert "<script" not in page and "\x1b" not in page and "\u202e" not in page
    assert "&lt;script&gt;" in page and "\\x1b[2J" in page


def test_a_long_table_and_many_warnings_are_cut_and_say_so(tmp_path: Path) -> None:
    files = {f"fast_p{shade}.svg": tmp_path / "fast_p.svg" for shade in ("", "-dark")}
    (tmp_path / "fast_p.svg").write_text("<svg/>", encoding="utf-8")
    several = [entry(f"p{number}", 2.0) for number in range(overview.ROWS + 3)]
    warnings = {f"run {number}": ["beware"] for number in range(overview.WARNINGS + 2)}
    page = render("overview.html", overview.overview_context(several, warnings, files))
    assert page.count("<tr>") == overview.ROWS + 5 and "3 more are not shown" in page and "2 more." in page


def test_every_row_has_its_columns(tmp_path: Path) -> None:
    files = {f"fast_p{shade}.svg": tmp_path / "fast_p.svg" for shade in ("", "-dark")}
    (tmp_path / "fast_p.svg").write_text("<svg/>", encoding="utf-8")
    context = overview.overview_context(FOUND, {}, files)
    for table in ("fast", "mean", "problem"):
        assert {len(row) for row in context[f"{table}_rows"]} == {len(context[f"{table}_columns"])}
    row = dict(zip(context["problem_columns"], context["problem_rows"][1], strict=True))
    assert (row["Problem"], row["Over eager"], row["Kernel"]) == ("b", "1.50x [1.47, 1.53]", "2.00 ms")
    assert row["Over compile"].startswith("0.75x [")


def test_what_the_page_on_reports_names_for_python_can_be_imported() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    rows = [row.split("|")[1:3] for row in page.partition("| module | gives |")[2].splitlines()[2:]]
    assert len(rows) == 6
    for names, gives in rows:
        modules = [importlib.import_module(f"kb_evolve.report.{name}") for name in re.findall(r"`(\w+)`", names)]
        for name in re.findall(r"`(\w+)`", gives):
            assert any(callable(getattr(module, name, None)) for module in modules), name


def kb(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two short searches on one problem, one of them with a chooser that learns nothing, and an empty run."""
    from toy_makers import toy

    path = tmp_path_factory.mktemp("runs") / "two.db"
    for name, policy in (("one", "bandit"), ("plain", "uniform")):
        config = path.with_suffix(".toml")
        config.write_text(f'[mutators]\npolicy = "{policy}"\n', encoding="utf-8")
        search = Search(toy(), config=config, db=str(path), run=name, workbench=Replay(Landscape()), evaluations=12)
        search.run()
    with open_store(path) as store:
        store.create_run(a_run(name="empty", problem_source=toy().source, problem_sha256=toy().sha256))
    return path


def test_one_run_gets_its_page_with_its_control_arms(database: Path, tmp_path: Path) -> None:
    result = kb("report", "one", "--db", database, "--out", tmp_path / "one", "--json")
    assert result.exit_code == 0, result.output
    paths = json.loads(result.stdout)["paths"]
    assert len(paths) == 41 and all(Path(path).stat().st_size for path in paths.values())
    page = Path(paths["index.html"]).read_text(encoding="utf-8")
    assert "uniform (control)" in page and "No control arm" not in page
    assert "no outcome yet" not in page and "Telling the history again" not in page


def test_several_runs_get_one_page(database: Path, tmp_path: Path) -> None:
    found = tmp_path / "baselines.json"
    found.write_text(json.dumps({"baselines": [{**COMPILE, "problem": "toy"}]}), encoding="utf-8")
    for names in (("--all",), ("one", "plain")):
        result = kb("report", *names, "--db", database, "--out", tmp_path / "all", "--baselines", found)
        assert result.exit_code == 0, result.output
        page = (tmp_path / "all" / "index.html").read_text(encoding="utf-8")
        assert "Over compile" in page and "toy" in page and "beside it 4 pictures" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name the runs to report on, or give --all"),
        (("one", "--all"), "not both"),
        (("nobody",), "its runs: empty, one, plain"),
        (("--all", "--baselines", "missing.json"), "holds no baselines"),
    ],
)
def test_what_cannot_be_reported_is_said_in_words(database: Path, arguments: tuple[str, ...], said: str) -> None:
    result = kb("report", *arguments, "--db", database, "--out", database.parent / "none")
    assert result.exit_code in (1, 2, 3) and said in result.output + str(result.exception)
    assert not (database.parent / "none").exists()


def test_an_empty_database_and_an_empty_run_are_said_in_words(database: Path, tmp_path: Path) -> None:
    with open_store(tmp_path / "empty.db"):
        pass
    result = kb("report", "--all", "--db", tmp_path / "empty.db", "--out", tmp_path / "none")
    assert "holds no run yet" in result.output + str(result.exception)
    result = kb("report", "empty", "--db", database, "--out", tmp_path / "empty")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "empty" / "index.html").read_text(encoding="utf-8")
    assert "Nothing has been evaluated yet." in page
    assert "<img" not in page and "Best so far, by evaluation: nothing evaluated yet." in page
    assert len(list((tmp_path / "empty").iterdir())) == 41, "figures that say why they are empty"


def test_a_history_that_was_cut_in_the_middle_of_the_work_is_reported(toy_problem: Problem, tmp_path: Path) -> None:
    path = tmp_path / "cut.db"
    Search(toy_problem, db=str(path), run="cut", workbench=Replay(Landscape()), evaluations=10).run()
    with sqlite3.connect(path) as db:
        for table in ("outcomes", "tellings"):
            db.execute(f"DROP TRIGGER {table}_no_delete")
            db.execute(f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT 2)")
    with open_store(path, read_only=True) as store:
        record = read_record(store, store.runs()[0])
    assert "no outcome yet: 2." in " ".join(warnings_of(record))
    assert len(record.history) == len(record.told_at) == len(curves.by_wall(record)) and record.trouble == ""
    assert curves.best_curve(record, curves.by_wall(record)).x and operators.arm_table(record)


def test_a_file_that_holds_no_baselines_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    for text in ("[]", "{", '{"baselines": [{"kind": "compile"}]}', '{"baselines": 3}'):
        bad.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=r"bad\.json holds no baselines"):
            suite.read_baselines([bad])
