"""Seeds of a run: where they are found, what is left out, how they are judged and shown."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fitness.evaluation import Verdict
from fitness.replay import Failure, Landscape, Replay
from islands.store import open_store
from kb_evolve.cli import add_commands, cli
from kb_evolve.commands.run import summary
from kb_evolve.config import ConfigError, RunConfig
from kb_evolve.search import Outcome, Search
from kb_evolve.seeding.files import FILES_LIMIT, JSON_LIMIT, KERNELBENCH_LIMIT, read_seeds
from kb_evolve.seeding.seed import ORIGIN, SOURCE_LIMIT, fault
from kb_evolve.seeding.similar import operators, similarity
from problems.problem import Problem

add_commands()


def kb(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def kernel(problem: Problem, block: int, unroll: int = 4) -> str:
    """The toy problem's kernel with other constants."""
    assert problem.seed is not None
    return problem.seed.replace("BLOCK = 4;", f"BLOCK = {block};").replace("UNROLL = 4;", f"UNROLL = {unroll};")


def search(problem: Problem, db: Path, landscape: Landscape | None = None, **options: Any) -> Outcome:
    options = {"run": "toy", "evaluations": 12, **options}
    return Search(problem, db=str(db), workbench=Replay(landscape or Landscape()), **options).run()


def sown(db: Path, run: str = "toy") -> list[Any]:
    """The told candidates of a run that came from elsewhere."""
    with open_store(db, read_only=True) as store:
        found = store.find_run(run)
        assert found is not None
        return [one for one in store.history(found.id) if ORIGIN in one.candidate.details]


# Files


@pytest.fixture
def folder(tmp_path: Path, toy_problem: Problem) -> Path:
    """Two good kernels and four bad files."""
    path = tmp_path / "kernels"
    path.mkdir()
    (path / "a.py").write_text(kernel(toy_problem, 64))
    (path / "b.py").write_text(kernel(toy_problem, 128))
    (path / "broken.py").write_text("def (")
    (path / "other.py").write_text("class Model:\n    pass\n")
    (path / "huge.py").write_text("#" * (SOURCE_LIMIT + 1))
    (path / "latin.py").write_bytes(b"# caf\xe9\nclass ModelNew: ...\n")
    (path / "notes.txt").write_text("not a kernel")
    return path


def test_a_folders_kernels_become_first_candidates_and_bad_files_cost_nothing_else(
    tmp_path: Path, toy_problem: Problem, folder: Path
) -> None:
    outcome = search(toy_problem, tmp_path / "db", seeds=(str(folder),))
    assert outcome.stop == "budget"
    seeded = outcome.seeded
    assert seeded is not None and (seeded.taken, seeded.verdicts) == (2, {"correct": 2})
    assert len(seeded.left_out) == 4
    for name, why in (("broken", "not Python"), ("other", "no ModelNew"), ("huge", "more than"), ("latin", "UTF-8")):
        assert any(f"{name}.py" in line and why in line for line in seeded.left_out), seeded.left_out
    assert "Seeds: 2 taken: 2 correct." in summary(outcome, None)
    assert "left out" in summary(outcome, None)


def test_seeds_are_dealt_out_to_the_islands_behind_the_bundled_first_kernel(
    tmp_path: Path, toy_problem: Problem, folder: Path
) -> None:
    search(toy_problem, tmp_path / "db", seeds=(str(folder),), islands=3)
    assert [(one.candidate.number, one.candidate.island) for one in sown(tmp_path / "db")] == [(3, 0), (4, 1)]


def test_a_seed_that_fails_is_judged_like_any_candidate_and_ends_nothing(
    tmp_path: Path, toy_problem: Problem, folder: Path
) -> None:
    for verdict in (Verdict.WRONG_RESULT, Verdict.COMPILE_ERROR, Verdict.NO_VERDICT):
        at_build = verdict is Verdict.COMPILE_ERROR
        landscape = Landscape(failures=(Failure("BLOCK = 64;", verdict, at_build=at_build),))
        outcome = search(toy_problem, tmp_path / f"{verdict}.db", landscape, seeds=(str(folder),))
        assert outcome.stop == "budget"
        assert {one.evaluation.verdict for one in sown(tmp_path / f"{verdict}.db")} == {verdict, Verdict.CORRECT}


def test_where_a_seed_came_from_is_shown(tmp_path: Path, toy_problem: Problem, folder: Path) -> None:
    search(toy_problem, tmp_path / "db", seeds=(str(folder),))
    one = sown(tmp_path / "db")[0]
    assert f"seed: from {folder / 'a.py'}" in kb("show", one.candidate.id, "--db", tmp_path / "db").stdout
    shown = json.loads(kb("show", one.candidate.id, "--db", tmp_path / "db", "--json").stdout)
    assert shown["details"]["seed"] == {"kind": "file", "path": str(folder / "a.py")}


def test_a_resumed_run_is_not_seeded_again(tmp_path: Path, toy_problem: Problem, folder: Path) -> None:
    search(toy_problem, tmp_path / "db", seeds=(str(folder),))
    (folder / "c.py").write_text(kernel(toy_problem, 256))
    again = search(toy_problem, tmp_path / "db", seeds=(str(folder),), evaluations=20)
    assert again.evaluations == 20
    assert len(sown(tmp_path / "db")) == 2


def test_a_run_that_is_killed_has_its_seeds_once(
    tmp_path: Path, folder: Path, start_search: Callable[..., subprocess.Popen[str]]
) -> None:
    arguments = {"seeds": (str(folder),), "islands": 2, "evaluations": 10, "landscape": {"measure_s": 0.02}}
    for part in range(1, 5):
        child = start_search(tmp_path / "db", **arguments)
        time.sleep(0.25 * part)
        child.kill()
        child.communicate()
    output, errors = start_search(tmp_path / "db", **arguments).communicate(timeout=60)
    assert output.strip() == "budget", errors
    assert [one.candidate.number for one in sown(tmp_path / "db")] == [2, 3]
    with open_store(tmp_path / "db") as store:
        run = store.find_run("toy")
        assert run is not None
        assert [event.kind for event in store.events(run.id)].count("seeded") == 1


def test_a_run_keeps_its_seeds_for_good(tmp_path: Path, toy_problem: Problem, folder: Path) -> None:
    search(toy_problem, tmp_path / "db")
    with pytest.raises(ConfigError, match="was started with seeds = "):
        search(toy_problem, tmp_path / "db", seeds=(str(folder),))


def test_seeds_alone_begin_a_run_of_a_problem_without_a_first_kernel(
    tmp_path: Path, toy_problem: Problem, folder: Path
) -> None:
    bare = Problem("toy", "toy", toy_problem.source)
    landscape = Landscape(failures=(Failure("BLOCK = 64;", Verdict.WRONG_RESULT),))
    outcome = search(bare, tmp_path / "db", landscape, seeds=(str(folder),), islands=3, evaluations=30)
    assert outcome.stop == "budget"
    assert outcome.best is not None
    with open_store(tmp_path / "db") as store:
        history = store.history(outcome.run.id)
    islands = {one.candidate.island for one in history if one.evaluation.is_correct and one.candidate.generation == 0}
    assert islands == {0, 1, 2}


def test_seeds_that_give_nothing_are_an_error_where_there_is_no_other_first_kernel(
    tmp_path: Path, toy_problem: Problem
) -> None:
    (tmp_path / "bad.py").write_text("class Model: ...")
    bare = Problem("toy", "toy", toy_problem.source)
    with pytest.raises(ConfigError, match=r"gave no kernel to begin with.*no ModelNew"):
        search(bare, tmp_path / "db", seeds=(str(tmp_path / "bad.py"),))
    with open_store(tmp_path / "db") as store:
        assert store.runs() == []


def test_no_seed_that_is_right_ends_a_run_with_the_reason(tmp_path: Path, toy_problem: Problem, folder: Path) -> None:
    bare = Problem("toy", "toy", toy_problem.source)
    landscape = Landscape(failures=(Failure("ModelNew", Verdict.WRONG_RESULT),))
    outcome = search(bare, tmp_path / "db", landscape, seeds=(str(folder),))
    assert outcome.stop == "seed_failed"
    assert "no seed was right" in outcome.reason and "2 were judged" in outcome.reason


def test_seeds_are_cut_to_a_number_for_each_spec_and_to_half_of_the_evaluations(
    tmp_path: Path, toy_problem: Problem
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:02d}.py").write_text(kernel(toy_problem, 4, number + 5))
    outcome = search(toy_problem, tmp_path / "db", seeds=(str(folder),), evaluations=10)
    assert outcome.seeded is not None and outcome.seeded.taken == 5
    assert outcome.evaluations <= 10
    assert len(outcome.seeded.left_out) == 2


def test_a_program_that_is_there_already_is_taken_once(tmp_path: Path, toy_problem: Problem, folder: Path) -> None:
    (folder / "same.py").write_text(kernel(toy_problem, 64))
    (folder / "first.py").write_text(toy_problem.seed or "")
    outcome = search(toy_problem, tmp_path / "db", seeds=(str(folder),))
    assert outcome.seeded is not None and outcome.seeded.taken == 2


def test_pipes_and_links_to_nothing_are_left_out(tmp_path: Path, toy_problem: Problem) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    os.mkfifo(folder / "pipe.py")
    (folder / "gone.py").symlink_to(tmp_path / "none.py")
    found = read_seeds(folder, toy_problem)
    assert found.seeds == ()
    assert len(found.left_out) == 2


@pytest.mark.parametrize("text", ["(" * 5000, "x = " + "-" * 20000 + "1", "class ModelNew: '\ud800'", "a\0b"])
def test_text_that_breaks_a_parser_is_only_refused(text: str) -> None:
    assert fault(text) != ""


# KernelBench and OpenEvolve


def test_kernelbench_samples_of_the_problem_come_fastest_first_and_wrong_ones_last(tmp_path: Path) -> None:
    runs = tmp_path / "runs" / "some_model"
    runs.mkdir(parents=True)
    problem = Problem("level1/19", "19_ReLU", "class Model: ...")
    for number, sample in ((19, 0), (19, 1), (19, 2), (19, 3), (20, 0)):
        (runs / f"level_1_problem_{number}_sample_{sample}_kernel.py").write_text(f"# {number} {sample}")
    entries = [(0, False, -1), (1, True, 3.0), (2, True, 2.0)]
    results = [{"sample_id": sample, "correctness": good, "runtime": time} for sample, good, time in entries]
    (runs / "eval_results.json").write_text(json.dumps({"19": results}))
    for path in (runs, runs.parent):
        found = read_seeds(path, problem)
        assert [seed.source for seed in found.seeds] == ["# 19 2", "# 19 1", "# 19 3", "# 19 0"]
        assert found.left_out == ("1 samples are of other problems than level1/19",)


def test_our_own_kernelbench_export_can_be_taken_in_again(tmp_path: Path, toy_problem: Problem) -> None:
    first = search(toy_problem, tmp_path / "db", evaluations=20)
    kb("export", "toy", "--format", "kernelbench", "--out", tmp_path / "export", "--db", tmp_path / "db")
    found = read_seeds(tmp_path / "export" / "runs", toy_problem)
    assert first.best is not None and len(found.seeds) >= 1
    other = Problem("other", "other", "class Model: ...  # another")
    assert read_seeds(tmp_path / "export" / "runs", other).seeds == ()


@pytest.mark.parametrize("results", ["[]", "{", '{"19": 3}', '{"19": [{"sample_id": 0}]}', "[" * 100_000, "9" * 5000])
def test_results_that_cannot_be_read_only_lose_the_order(tmp_path: Path, results: str) -> None:
    (tmp_path / "level_1_problem_19_sample_0_kernel.py").write_text("# it")
    (tmp_path / "eval_results.json").write_text(results)
    found = read_seeds(tmp_path, Problem("level1/19", "19_ReLU", ""))
    assert [seed.source for seed in found.seeds] == ["# it"]


@pytest.fixture
def checkpoint(tmp_path: Path, toy_problem: Problem) -> Path:
    """An OpenEvolve output folder whose second checkpoint has four programs, one of them malformed."""
    for number in (9, 10):
        programs = tmp_path / "output" / "checkpoints" / f"checkpoint_{number}" / "programs"
        programs.mkdir(parents=True)
        (programs.parent / "metadata.json").write_text(json.dumps({"best_program_id": "c"}))
    for name, block, score in (("a", 8, 2.0), ("b", 16, 5.0), ("c", 32, 1.0)):
        text = {
            "id": name,
            "code": kernel(toy_problem, block),
            "language": "python",
            "metrics": {"combined_score": score},
        }
        (programs / f"{name}.json").write_text(json.dumps(text))
    (programs / "d.json").write_text('{"id": "d"}')
    (programs / "e.json").write_text(" " * (JSON_LIMIT + 1))
    return tmp_path / "output"


def test_an_openevolve_checkpoint_gives_its_best_then_by_score(checkpoint: Path, toy_problem: Problem) -> None:
    for path in (checkpoint, checkpoint / "checkpoints", checkpoint / "checkpoints" / "checkpoint_10"):
        found = read_seeds(path, toy_problem)
        assert [seed.origin["program"] for seed in found.seeds] == ["c", "b", "a"]
        assert len(found.left_out) == 2


def test_an_openevolve_programs_id_is_kept_with_its_candidate(
    tmp_path: Path, checkpoint: Path, toy_problem: Problem
) -> None:
    search(toy_problem, tmp_path / "db", seeds=(str(checkpoint),))
    one = sown(tmp_path / "db")[0]
    assert one.candidate.details[ORIGIN]["program"] == "c"
    assert "OpenEvolve's program c" in kb("show", one.candidate.id, "--db", tmp_path / "db").stdout


# Runs


def test_another_runs_elites_are_taken_with_their_ids(tmp_path: Path, toy_problem: Problem) -> None:
    first = search(toy_problem, tmp_path / "db", evaluations=20)
    assert first.best is not None
    outcome = search(toy_problem, tmp_path / "db", run="second", seeds=("toy",), seeds_each=3, evaluations=20)
    origins = [one.candidate.details[ORIGIN] for one in sown(tmp_path / "db", "second")]
    assert origins[0]["candidate"] == first.best.candidate.id
    assert (origins[0]["kind"], origins[0]["run"], len(origins)) == ("run", "toy", 3)
    assert outcome.best is not None and first.best.evaluation.speedup is not None
    assert (outcome.best.evaluation.speedup or 0) >= 0.99 * first.best.evaluation.speedup


def test_what_names_neither_file_nor_run_is_refused_before_a_run_is_made(tmp_path: Path, toy_problem: Problem) -> None:
    search(toy_problem, tmp_path / "db")
    with pytest.raises(ConfigError, match=r"no such file or folder.*its runs: toy"):
        search(toy_problem, tmp_path / "db", run="second", seeds=("tyo",))
    with open_store(tmp_path / "db") as store:
        assert len(store.runs()) == 1


def test_a_problem_of_the_same_kind_lends_its_elite(tmp_path: Path, toy_problem: Problem) -> None:
    search(toy_problem, tmp_path / "db")
    near = Problem("scale17", "scale17", toy_problem.source.replace("16", "17"), seed=kernel(toy_problem, 256))
    search(near, tmp_path / "db", run="near", seeds=("similar",))
    (one,) = sown(tmp_path / "db", "near")
    assert (one.candidate.details[ORIGIN]["kind"], one.candidate.details[ORIGIN]["problem"]) == ("similar", "toy")
    assert "shares 100% of this one's operators" in kb("show", one.candidate.id, "--db", tmp_path / "db").stdout


def test_without_a_problem_of_the_same_kind_that_is_told(tmp_path: Path, toy_problem: Problem) -> None:
    search(toy_problem, tmp_path / "db")
    far = Problem(
        "far", "far", "import torch\nclass Model:\n    def forward(self, x):\n        return torch.fft.fft(x)\n"
    )
    bare = Problem(far.id, far.name, far.source, seed=toy_problem.seed)
    outcome = search(bare, tmp_path / "db", run="far", seeds=("similar",))
    assert outcome.seeded is not None and outcome.seeded.taken == 0
    assert "shares half of the operators" in outcome.seeded.left_out[0]


FORMS = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        {init}

    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.rand(3).softmax(0).cumsum(0)]
"""


def test_one_operator_in_its_three_forms_is_one() -> None:
    forms = [
        FORMS.format(init="self.norm = nn.LayerNorm(size)", forward="x"),
        FORMS.format(init="pass", forward="F.layer_norm(x, (3,))"),
        FORMS.format(init="pass", forward="x.layer_norm()"),
    ]
    assert [dict(operators(form)) for form in forms] == [{"layernorm": 1}] * 3


def test_a_source_that_would_act_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    assert operators(f"open({str(mark)!r}, 'w')\nimport nowhere\n") == {"open": 1}
    assert not mark.exists()


def test_similarity_is_the_share_of_common_operators() -> None:
    one = operators("f = a @ b + c\ng = relu(relu(f))")
    other = operators("f = mm(a, b)\ng = relu(f)")
    assert similarity(one, other) == 0.5
    assert similarity(one, one) == 1.0
    assert similarity(operators(""), operators("")) == 0.0


def test_a_folder_without_end_is_read_up_to_a_limit(tmp_path: Path, toy_problem: Problem) -> None:
    for number in range(FILES_LIMIT + 5):
        (tmp_path / f"{number:06d}").touch()
    (tmp_path / "zzz.py").write_text("class ModelNew: ...")
    found = read_seeds(tmp_path, toy_problem)
    assert found.seeds == ()
    assert f"more than 10,000 files, those from {tmp_path / '010000'} on were not looked at" in found.left_out[-1]


def test_the_limits_that_the_page_on_seeds_states_are_those_of_the_program() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "seeding.md").read_text()
    assert f"up to {SOURCE_LIMIT >> 10} KiB each (JSON up to {JSON_LIMIT >> 20} MiB" in page
    assert f"beside KernelBench's samples up to {KERNELBENCH_LIMIT >> 20} MiB; {FILES_LIMIT:,} files of a" in page
    assert f"at most {RunConfig().seeds_each} kernels" in page
