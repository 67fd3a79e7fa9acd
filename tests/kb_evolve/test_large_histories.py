"""What needs one elite reads no whole history; what needs the history holds a page of it in memory."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from export_makers import kb, problem

from fitness.evaluation import PROTOCOL, Evaluation, Verdict
from fitness.replay import Landscape, Replay
from islands import browsing
from islands import store as stores
from islands.candidate import Candidate
from islands.run import Run
from islands.store import Store, open_store
from kb_evolve.config import resolve
from kb_evolve.export import tables
from kb_evolve.export.kernelbench import samples
from kb_evolve.search import Search
from kb_evolve.seeding.gather import elites_of, gather
from kb_evolve.standing import best_of, bests, finalists, standing

PROBLEM = "class Model: ...\n"
CANDIDATES = 200
LOG = 50_000


class Hungry(Replay):
    """A judge that finds the faster kernels to take more memory."""

    def measure(self, *arguments: Any) -> Evaluation:
        found = super().measure(*arguments)
        return dataclasses.replace(found, peak_mem_bytes=int(1000 * (found.speedup or 1)))


@pytest.fixture(scope="module")
def night(memory_dir: Path) -> Path:
    """A database with a run whose front has several kernels."""
    db = memory_dir / "large.db"
    Search(problem(), db=str(db), run="night", workbench=Hungry(Landscape()), evaluations=30).run()
    return db


@pytest.fixture
def no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a whole history was read")

    for name in ("history", "stream", "summaries", "attempts"):
        monkeypatch.setattr(Store, name, refuse)


@pytest.mark.usefixtures("no_history")
@pytest.mark.parametrize("form", ["kernelbench", "bundle", "markdown"])
def test_an_export_of_the_elite_reads_no_whole_history(night: Path, tmp_path: Path, form: str) -> None:
    result = kb("export", "night", "--format", form, "--db", night, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_history")
def test_the_mcp_server_shows_and_lists_without_a_whole_history(night: Path) -> None:
    anyio = pytest.importorskip("anyio")
    pytest.importorskip("mcp")
    from kb_evolve.mcp_server import make_server

    server = make_server(str(night))
    listed = anyio.run(server.call_tool, "top", {}).structured_content
    shown = anyio.run(server.call_tool, "show", {"id": "night"}).structured_content
    assert shown["id"] == listed["top"][0]["id"] == shown["lineage"][-1]["id"]
    assert len(shown["lineage"]) > 1 and shown["lineage"][0]["generation"] == 0


def test_one_text_of_a_candidate_is_shown_without_asking_who_is_best(
    night: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the speedups of the run were read")

    with open_store(night, read_only=True) as store:
        best = best_of(store, store.runs()[0].id)
    assert best is not None
    monkeypatch.setattr("kb_evolve.standing.record", refuse)
    assert kb("show", best.candidate.id, "--source", "--db", night).stdout == best.candidate.source
    assert kb("show", best.candidate.id, "--prompt", "--db", night).exit_code == 0
    assert kb("show", best.candidate.id, "--source", "--json", "--db", night).exit_code != 0, "JSON has the lineage"


def test_the_finalists_give_an_export_the_samples_of_the_whole_history(night: Path) -> None:
    with open_store(night, read_only=True) as store:
        run = store.runs()[0]
        expected = samples(standing(store, run.id))
        assert len(expected) > 1 and samples(finalists(store, run.id)) == expected
        assert bests(store, [run.id]) == {run.id: best_of(store, run.id)} and best_of(store, run.id) == expected[0]


@pytest.mark.usefixtures("no_history")
def test_seeds_from_a_run_are_read_as_far_as_they_are_taken(night: Path) -> None:
    config = resolve({"run": {"seeds_each": 3}})
    with open_store(night, read_only=True) as store:
        run = store.runs()[0]
        several = list(elites_of(store, run.id))
        found = gather(["run:night"], store, problem(), config, known=None)
    sources = [one.candidate.source for one in several]
    assert len(set(sources)) == len(sources) > 4, "each program once"
    assert [seed.source for seed in found.seeds] == sources[:3]
    assert found.left_out == (f"run:night: {len(sources) - 3} more, seeds_each = 3",)


@pytest.fixture(scope="module")
def long_logs(memory_dir: Path) -> Path:
    """A database whose logs, and whose events, have ten megabytes each."""
    db = memory_dir / "long.db"
    sha256 = hashlib.sha256(PROBLEM.encode()).hexdigest()
    run = Run("run00000", "demo", "rmsnorm", sha256, PROBLEM, "cpp", "cpu", "fp32", {}, 7, {}, "0" * 40, "2026-01-01")
    with open_store(db) as store:
        store.create_run(run)
        with store.transaction():
            for number in range(CANDIDATES):
                candidate = Candidate(f"run00000-{number:06d}", number, 0, 0, "cpp", f"x = {number}\n")
                store.add_candidate(run.id, candidate)
                told = Evaluation(Verdict.TIMEOUT, "late", "rmsnorm", "cpp", candidate.source_sha256, log="x" * LOG)
                store.add_evaluation(
                    run.id, candidate.id, told, (candidate.source_sha256, sha256, "cpu", "fp32", PROTOCOL)
                )
                store.add_event(run.id, "noted", {"text": "y" * LOG})
    return db


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_whole_history_is_written_with_a_page_of_it_in_memory(
    long_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    for module, name in ((stores, "PAGE"), (browsing, "PAGE"), (tables, "BATCH")):
        monkeypatch.setattr(module, name, 10)
    kb("db", "export", "--help")
    tracemalloc.start()
    try:
        written: Any = json.loads(
            kb("db", "export", "--format", form, "--out", tmp_path, "--db", long_logs, "--json").stdout
        )
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(written["files"].values()) == 1 + 2 * CANDIDATES
    assert peak_bytes < 0.6 * CANDIDATES * LOG, "all logs have ten megabytes"
