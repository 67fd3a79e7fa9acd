"""An export in KernelBench's layout over what is there already, and what must not leave the house with it."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from kernelbench_makers import HISTORY, RUN, numbered, owned

from kb_evolve.export.kernelbench import ExportError, export_run, export_runs, folder_name


def test_a_second_export_leaves_no_sample_of_the_first(tmp_path):
    first = export_run(RUN, HISTORY, tmp_path, level=1, problem_id=23)
    export_run(RUN, HISTORY[2:3], tmp_path, level=1, problem_id=23)
    assert first[0].exists() and not first[1].exists()


def test_an_export_under_other_numbers_replaces_the_first_one(tmp_path):
    export_run(RUN, HISTORY, tmp_path, level=1, problem_id=23)
    paths = export_run(RUN, HISTORY, tmp_path, level=2, problem_id=7)
    assert sorted(paths[0].parent.glob("*_kernel.py")) == sorted(path for path in paths if "_sample_" in path.name)


def test_two_runs_whose_names_give_one_folder_do_not_mix(tmp_path):
    export_run(RUN, HISTORY, tmp_path)
    other = replace(RUN, id="ijklmnop", name="twice_run_1")
    assert folder_name(other.name) == folder_name(RUN.name)
    with pytest.raises(ExportError, match="no earlier export of run 'twice_run_1'"):
        export_run(other, HISTORY, tmp_path)
    assert json.loads((tmp_path / "runs" / "twice_run_1" / "provenance.json").read_text())["run"]["id"] == RUN.id


@pytest.mark.parametrize("provenance", [None, "{", "[]", '{"generator": "kb_evolve", "run": 1}', "[" * 100_000])
def test_what_kernelbench_itself_wrote_is_not_written_over(tmp_path, provenance):
    folder = tmp_path / "runs" / "twice_run_1"
    folder.mkdir(parents=True)
    (folder / "eval_results.json").write_text("theirs")
    (folder / "level_0_problem_0_sample_0_kernel.py").write_text("theirs")
    if provenance is not None:
        (folder / "provenance.json").write_text(provenance)
    with pytest.raises(ExportError, match="name another folder"):
        export_run(RUN, HISTORY, tmp_path)
    assert {path.read_text() for path in folder.iterdir()} - {provenance} == {"theirs"}


def test_a_pipe_in_the_records_place_does_not_hang(tmp_path):
    folder = tmp_path / "runs" / "twice_run_1"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "provenance.json")
    with pytest.raises(ExportError, match="no earlier export"):
        export_run(RUN, HISTORY, tmp_path)


def test_several_runs_replace_only_several_runs(tmp_path):
    found = [(run, owned(run, HISTORY)) for run in (numbered("level1/1"), numbered("level1/2"))]
    export_runs(found, tmp_path)
    found[1] = (numbered("level1/3"), owned(numbered("level1/3"), HISTORY))
    paths = export_runs(found, tmp_path)
    kernels = {path.name for path in paths[0].parent.glob("*_kernel.py")}
    assert {name.split("_")[3] for name in kernels} == {"1", "3"}
    lone = replace(numbered("level1/1"), name="kb_evolve_level1")
    with pytest.raises(ExportError, match="no earlier export of run"):
        export_run(lone, HISTORY, tmp_path)


def test_addresses_places_and_secrets_stay_at_home(tmp_path):
    config = {
        "prompt_secret": "s3cret",
        "run": {"db": "/home/me/kb.db", "seed": 1},
        "models": {"api_base": "http://me:token@host", "settings": {"m": {"api_key": "s3cret"}}, "model": ["m"]},
    }
    folder = export_run(replace(RUN, config=config), HISTORY, tmp_path)[0].parent
    texts = "".join(path.read_text() for path in folder.iterdir())
    assert not [word for word in ("s3cret", "/home/me", "token@host") if word in texts]
    kept = json.loads((folder / "provenance.json").read_text())["run"]["config"]
    assert kept == {"run": {"seed": 1}, "models": {"model": ["m"]}}
    assert config["models"]["settings"]


def test_a_figure_that_json_cannot_write_is_null(tmp_path):
    odd = replace(HISTORY[2].evaluation, max_abs_err=float("inf"), features={"share": float("nan")})
    paths = export_run(RUN, [replace(HISTORY[2], evaluation=odd)], tmp_path)
    document = json.loads((paths[0].parent / "provenance.json").read_text(), parse_constant=pytest.fail)
    assert document["samples"][0]["evaluation"]["max_abs_err"] is None
