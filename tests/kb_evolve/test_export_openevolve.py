"""A checkpoint for OpenEvolve: its own database reads it, its own command goes on from it, and it comes back."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from export_makers import kb, problem, searched

sys.path.append(str(Path(__file__).parents[1] / "mutators"))
from openai_server import Act, OpenAIServer, texts_of

from fitness.evaluation import Verdict
from fitness.replay import Failure, Landscape
from islands.store import open_store
from kb_evolve.export import openevolve
from kb_evolve.export.kernelbench import ExportError
from kb_evolve.seeding.files import read_seeds
from kb_evolve.standing import best_of, standing

ITERATIONS = 2


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    searched(tmp_path / "db", evaluations=24)
    answer = kb("export", "night", "--format", "openevolve", "--out", tmp_path / "out", "--db", tmp_path / "db")
    assert answer.exit_code == 0, answer.output
    return tmp_path / "out"


def checkpoint_of(folder: Path) -> Path:
    [checkpoint] = (folder / "checkpoints").iterdir()
    return checkpoint


def test_openevolves_database_reads_it_and_knows_the_elite(tmp_path: Path, exported: Path) -> None:
    from openevolve.config import Config
    from openevolve.database import ProgramDatabase

    with open_store(tmp_path / "db", read_only=True) as store:
        run = store.find_run("night")
        assert run is not None
        elite, told = best_of(store, run.id), {one.candidate.id: one for one in standing(store, run.id)}
    assert elite is not None and checkpoint_of(exported).name == f"checkpoint_{len(told)}"
    config = Config.from_yaml(exported / "config.yaml")
    assert config.language == "python" and not config.evaluator.cascade_evaluation
    database = ProgramDatabase(config.database)
    database.load(str(checkpoint_of(exported)))
    assert database.best_program_id == elite.candidate.id and database.last_iteration == len(told)
    assert (exported / "initial_program.py").read_text() == elite.candidate.source
    best, islands = elite.evaluation.speedup, sorted({one.candidate.island for one in told.values()})
    for program in database.programs.values():
        ours = told[program.id]
        assert program.code == ours.candidate.source and ours.evaluation.is_correct
        assert program.metadata["island"] == islands.index(ours.candidate.island)
        assert program.metrics["speedup"] == ours.evaluation.speedup
        assert best is not None and program.metrics["combined_score"] == min(best, program.metrics["speedup"])
        assert program.parent_id is None or program.parent_id in told
    assert len(database.programs) > 3


def test_it_comes_back_as_seeds_the_elite_first(exported: Path) -> None:
    found = read_seeds(exported, problem())
    assert not found.left_out
    first = (exported / "initial_program.py").read_bytes()
    hashes = [hashlib.sha256(seed.source.encode()).hexdigest() for seed in found.seeds]
    assert hashes[0] == hashlib.sha256(first).hexdigest() and len(set(hashes)) == len(hashes) > 3


def test_only_so_many_programs_go_the_fastest_and_the_elite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched(tmp_path / "db", evaluations=24)
    monkeypatch.setattr(openevolve, "PROGRAMS", 3)
    with open_store(tmp_path / "db", read_only=True) as store:
        run = store.find_run("night")
        assert run is not None
        history = standing(store, run.id)
        openevolve.export_openevolve(run, best_of(store, run.id), iter(history), tmp_path / "out")
    programs = [json.loads(path.read_text()) for path in (checkpoint_of(tmp_path / "out") / "programs").iterdir()]
    correct = sorted((one.evaluation.speedup or 0.0 for one in history if one.evaluation.is_correct), reverse=True)
    assert len(programs) <= 3 < len(correct)
    assert all(program["metrics"]["speedup"] >= correct[3] for program in programs)


def test_a_run_without_a_correct_candidate_and_a_folder_in_use_are_refused(tmp_path: Path) -> None:
    searched(tmp_path / "db", Landscape(failures=(Failure("ModelNew", Verdict.WRONG_RESULT),)), evaluations=3)
    arguments = ("--format", "openevolve", "--out", tmp_path / "out", "--db", tmp_path / "db")
    answer = kb("export", "night", *arguments)
    assert answer.exit_code == 2 and "no correct candidate" in answer.output and not (tmp_path / "out").exists()
    searched(tmp_path / "db", run="second")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    answer = kb("export", "second", *arguments)
    assert answer.exit_code == 2 and "no empty folder" in answer.output
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_what_a_database_from_elsewhere_holds_leads_nowhere(tmp_path: Path) -> None:
    searched(tmp_path / "db")
    with open_store(tmp_path / "db", read_only=True) as store:
        run = store.find_run("night")
        assert run is not None
        elite, history = best_of(store, run.id), standing(store, run.id)
    assert elite is not None
    one = next(each for each in history if each.candidate.source_sha256 != elite.candidate.source_sha256)
    strange = [
        replace(
            one, candidate=replace(one.candidate, id=name, digests=None, source=one.candidate.source + f"# {number}")
        )
        for number, name in enumerate(("../../../evil", "/evil", "a\\b", "", "evil.", "x" * 300))
    ]
    strange.append(replace(one, candidate=replace(one.candidate, id="far", digests=None, island=10**9, source="# far")))
    openevolve.export_openevolve(run, elite, [*strange, *history], tmp_path / "deep" / "er" / "out")
    files = {path.stem for path in (checkpoint_of(tmp_path / "deep" / "er" / "out") / "programs").iterdir()}
    assert {elite.candidate.id, "far"} <= files and all(openevolve.PLAIN.fullmatch(name) for name in files)
    (count,) = re.findall(r"num_islands: (\d+)", (tmp_path / "deep" / "er" / "out" / "config.yaml").read_text())
    assert 2 <= int(count) <= 6
    assert {path.name for path in tmp_path.rglob("*") if "evil" in path.name} == {"evil..json"}
    with pytest.raises(ExportError, match="cannot name a file"):
        openevolve.export_openevolve(run, strange[0], history, tmp_path / "other")


def test_a_lucky_figure_does_not_stand_above_the_elites(tmp_path: Path) -> None:
    searched(tmp_path / "db")
    with open_store(tmp_path / "db", read_only=True) as store:
        run = store.find_run("night")
        assert run is not None
        elite = best_of(store, run.id)
    assert elite is not None and elite.evaluation.speedup is not None
    speedup = elite.evaluation.speedup
    longer = replace(elite.candidate, id="lucky", digests=None, source=elite.candidate.source + "# longer\n" * 500)
    lucky = replace(elite, candidate=longer, evaluation=replace(elite.evaluation, speedup=2 * speedup))
    openevolve.export_openevolve(run, elite, [elite, lucky], tmp_path / "out")
    folder = checkpoint_of(tmp_path / "out")
    metrics = json.loads((folder / "programs" / "lucky.json").read_text())["metrics"]
    assert (metrics["combined_score"], metrics["speedup"]) == (speedup, 2 * speedup)
    assert json.loads((folder / "metadata.json").read_text())["best_program_id"] == elite.candidate.id


def evaluator(folder: Path) -> Any:
    """The exported module, loaded as OpenEvolve loads it."""
    spec = importlib.util.spec_from_file_location("exported_evaluator", folder / "evaluator.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_evaluator_judges_and_executes_nothing_itself(tmp_path: Path, exported: Path) -> None:
    judge = evaluator(exported)
    (tmp_path / "good.py").write_text(problem().seed or "")
    good = judge.evaluate(str(tmp_path / "good.py"))
    assert good.metrics["correct"] == 1.0 and good.metrics["combined_score"] == good.metrics["speedup"] > 0
    mark = tmp_path / "mark"
    (tmp_path / "bad.py").write_text(f"open({str(mark)!r}, 'w')\n")
    bad = judge.evaluate(str(tmp_path / "bad.py"))
    assert bad.metrics["combined_score"] == 0.0 and bad.metrics["correct"] == 0.0 and not mark.exists()
    assert bad.artifacts["verdict"] == "load_error" and bad.artifacts["reason"]
    (exported / "judge.json").write_text(json.dumps({"backend": "cuda", "device": "cuda:9", "precision": "fp32"}))
    with pytest.raises(RuntimeError, match="no verdict"):
        judge.evaluate(str(tmp_path / "good.py"))


def test_openevolves_own_command_goes_on_from_it(tmp_path: Path, exported: Path) -> None:
    """A model answers each prompt with the problem's first kernel and a comment; our judge decides."""
    asked: list[str] = []

    def write(body: dict[str, Any], number: int) -> Act:
        asked.append(texts_of(body)[-1])
        return Act(text=f"```python\n{problem().seed}\n# answer {number}\n```")

    with OpenAIServer(write) as server:
        config = (exported / "config.yaml").read_text()
        model = f"{{name: scripted, api_base: '{server.url}', api_key: none, weight: 1.0}}"
        config += f"diff_based_evolution: false\ncheckpoint_interval: 1\nllm:\n  models: [{model}]\n"
        (exported / "mine.yaml").write_text(config)
        command = [sys.executable, "-m", "openevolve.cli", "initial_program.py", "evaluator.py"]
        command += ["--config", "mine.yaml", "--checkpoint", str(checkpoint_of(exported))]
        command += ["--iterations", str(ITERATIONS), "--output", str(tmp_path / "later")]
        environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
        done = subprocess.run(command, cwd=exported, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(asked) == ITERATIONS and "class ModelNew" in asked[0]
    found = read_seeds(tmp_path / "later", problem())
    ours = {seed.source for seed in read_seeds(exported, problem()).seeds}
    later = [seed for seed in found.seeds if seed.source not in ours]
    assert later and all("# answer" in seed.source and seed.origin["score"] > 0 for seed in later)
