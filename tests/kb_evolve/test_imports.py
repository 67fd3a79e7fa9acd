"""`kb-evolve import` from the outside: what it says, its JSON, its exit codes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from export_makers import NAME, bundle_of, edit, kb, problem, reseal, searched

from fitness.evaluation import Verdict
from fitness.replay import Failure, Landscape, Replay
from islands.candidate import Evaluated
from islands.store import open_store
from kb_evolve.commands.imports import import_kernels
from kb_evolve.config import ConfigError
from kb_evolve.search import Outcome, Search
from kb_evolve.seeding.seed import ORIGIN
from kb_evolve.standing import best_of
from problems.problem import Problem


def told_in(db: Path) -> dict[str, list[str]]:
    """The candidates of each run, in the order told."""
    with open_store(db, read_only=True) as store:
        return {run.name: [one.candidate.id for one in store.history(run.id)] for run in store.runs()}


@pytest.fixture
def files(tmp_path: Path, toy_problem: Problem) -> tuple[Path, Path]:
    """Two databases that each searched the same problem under the same name."""
    paths = tmp_path / "ours.db", tmp_path / "theirs.db"
    for seed, path in enumerate(paths):
        Search(toy_problem, db=str(path), run="toy", workbench=Replay(Landscape()), evaluations=12, seed=seed).run()
    return paths


def test_an_imported_run_is_listed_and_shown_under_its_new_name(files: tuple[Path, Path]) -> None:
    ours, theirs = files
    result = kb("import", theirs, "--db", ours)
    assert result.exit_code == 0, result.output
    with open_store(theirs, read_only=True) as store:
        run = store.runs()[0]
        best = store.top(limit=1)[0].candidate.id
    assert f"new runs: toy@{run.id}" in result.stdout
    assert f"toy@{run.id} is toy there" in result.stdout
    assert f"toy@{run.id}" in kb("runs", "--db", ours).stdout
    assert best in kb("show", best, "--db", ours).stdout


def test_the_second_import_says_that_all_is_there(files: tuple[Path, Path]) -> None:
    ours, theirs = files
    kb("import", theirs, "--db", ours)
    assert "holds all of" in kb("import", theirs, "--db", ours).stdout
    again = json.loads(kb("import", theirs, "--db", ours, "--json").stdout)
    assert (again["added"], again["extended"], again["rows"]) == ([], [], {})
    assert len(again["unchanged"]) == 1


def test_an_imported_run_can_go_on_here(files: tuple[Path, Path], toy_problem: Problem) -> None:
    ours, theirs = files
    kb("import", theirs, "--db", ours)
    with open_store(theirs, read_only=True) as store:
        name = f"toy@{store.runs()[0].id}"
    bench = Replay(Landscape())
    outcome = Search(toy_problem, db=str(ours), run=name, workbench=bench, evaluations=16, seed=1).run()
    assert outcome.evaluations == 16


def test_a_run_that_went_on_in_both_files_ends_with_exit_code_2(files: tuple[Path, Path], toy_problem: Problem) -> None:
    ours, theirs = files
    kb("import", theirs, "--db", ours)
    with open_store(theirs, read_only=True) as store:
        name = f"toy@{store.runs()[0].id}"
    for path, run in ((ours, name), (theirs, "toy")):
        Search(toy_problem, db=str(path), run=run, workbench=Replay(Landscape()), evaluations=14, seed=1).run()
    before = told_in(ours)
    result = kb("import", theirs, "--db", ours)
    assert result.exit_code == 2
    assert "conflict" in result.stderr and "nothing was changed" in result.stderr
    assert told_in(ours) == before


def test_a_file_that_is_not_there_ends_with_exit_code_2(tmp_path: Path) -> None:
    result = kb("import", tmp_path / "none.db", "--db", tmp_path / "ours.db")
    assert result.exit_code == 2
    assert "name a database" in result.stderr


# Kernels as a run of their own


def elite(db: Path, run: str) -> Evaluated:
    with open_store(db, read_only=True) as store:
        found = store.find_run(run)
        best = best_of(store, found.id) if found else None
    assert best is not None
    return best


def take_in(
    path: Path, db: Path, ref: str | None = None, landscape: Landscape | None = None, **options: Any
) -> tuple[Outcome, list[Evaluated]]:
    """`kb-evolve import PATH` on the scripted landscape."""
    return import_kernels(path, ref, {"db": str(db), **options}, workbench=Replay(landscape or Landscape()))


@pytest.fixture(scope="module")
def exported(memory_dir: Path) -> Path:
    """A searched database, its bundle and its export in KernelBench's layout."""
    home = memory_dir / "exported"
    home.mkdir()
    searched(home / "kb.db")
    bundle_of(home / "kb.db", home / "bundle")
    assert kb("export", "night", "--db", home / "kb.db", "--format", "kernelbench", "--out", home).exit_code == 0
    return home


def test_a_bundle_comes_back_as_the_same_elite_with_where_it_came_from(exported: Path, tmp_path: Path) -> None:
    outcome, told = take_in(exported / "bundle", tmp_path / "new.db")
    before, after = elite(exported / "kb.db", "night"), elite(tmp_path / "new.db", outcome.run.name)
    assert after.candidate.source_sha256 == before.candidate.source_sha256
    assert outcome.run.name == f"import-{before.candidate.id}"
    assert (outcome.run.problem_id, outcome.evaluations) == (NAME, 1)
    origin = after.candidate.details[ORIGIN]
    assert origin["candidate"] == before.candidate.id and origin["run"] == "night"
    assert origin["kind"] == "bundle" and len(origin["bundle_sha256"]) == 64
    assert {one.candidate.source_sha256 for one in told} == {before.candidate.source_sha256}


def test_a_bundle_of_an_imported_bundle_has_the_same_elite(exported: Path, tmp_path: Path) -> None:
    outcome, _ = take_in(exported / "bundle", tmp_path / "new.db")
    again = bundle_of(tmp_path / "new.db", tmp_path / "again", outcome.run.name)
    for name in ("elite.py", "problem.py"):
        assert (again / name).read_bytes() == (exported / "bundle" / name).read_bytes()


def test_an_export_in_kernelbenchs_layout_comes_back_as_the_same_elite(exported: Path, tmp_path: Path) -> None:
    samples = sorted((exported / "runs" / "night").glob("*_kernel.py"))
    outcome, told = take_in(exported / "runs" / "night", tmp_path / "new.db", NAME)
    before, after = elite(exported / "kb.db", "night"), elite(tmp_path / "new.db", outcome.run.name)
    assert after.candidate.source_sha256 == before.candidate.source_sha256
    provenance = json.loads((exported / "runs" / "night" / "provenance.json").read_text())
    hashes = {sample["source_sha256"] for sample in provenance["samples"]}
    assert len(hashes) == len(samples)
    assert {one.candidate.source_sha256 for one in told} == hashes
    assert after.candidate.details[ORIGIN]["candidate"] == before.candidate.id


def test_a_large_export_comes_back_as_it_was_evolved_too(exported: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported / "runs" / "night", tmp_path / "night"))
    edit(folder / "provenance.json", "filler", value="x" * (5 << 20))
    edit(folder / "eval_results.json", "filler", value=["x" * (5 << 20)])
    _, told = take_in(folder, tmp_path / "new.db", NAME)
    provenance = json.loads((folder / "provenance.json").read_text())
    assert {one.candidate.source_sha256 for one in told} == {one["source_sha256"] for one in provenance["samples"]}
    first = next(one for one in told if ORIGIN in one.candidate.details)
    assert first.candidate.details[ORIGIN]["candidate"] == provenance["samples"][0]["candidate_id"]


def test_a_sample_that_was_edited_after_the_export_is_taken_as_it_is(exported: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported / "runs" / "night", tmp_path / "night"))
    sample = folder / "level_0_problem_0_sample_0_kernel.py"
    sample.write_text(sample.read_text() + "# edited\n")
    _, told = take_in(folder, tmp_path / "new.db", NAME)
    assert sample.read_text() in {one.candidate.source for one in told}


def test_importing_proposes_nothing_and_the_run_can_go_on_from_there(exported: Path, tmp_path: Path) -> None:
    db = tmp_path / "new.db"
    outcome, _ = take_in(exported / "bundle", db)
    assert outcome.attempts == {}
    more = Search(problem(), db=str(db), run=outcome.run.name, workbench=Replay(Landscape()), evaluations=6).run()
    assert more.evaluations == 6
    assert more.attempts["candidate"] > 0


def test_importing_again_judges_nothing_again(exported: Path, tmp_path: Path) -> None:
    first, _ = take_in(exported / "bundle", tmp_path / "new.db")
    again, _ = take_in(exported / "bundle", tmp_path / "new.db")
    assert (again.run.id, again.evaluations) == (first.run.id, first.evaluations)


def test_a_bundle_that_lies_elsewhere_now_is_known_by_its_checksums(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = take_in(exported / "bundle", tmp_path / "new.db")
    copy = Path(shutil.copytree(exported / "bundle", tmp_path / "copy"))
    monkeypatch.chdir(exported)
    for path in (copy, Path("bundle")):
        again, _ = take_in(path, tmp_path / "new.db")
        assert (again.run.id, again.evaluations) == (first.run.id, first.evaluations)


def test_another_kernel_under_the_same_id_is_not_taken_for_the_first_one(exported: Path, tmp_path: Path) -> None:
    take_in(exported / "bundle", tmp_path / "new.db")
    forged = Path(shutil.copytree(exported / "bundle", tmp_path / "forged"))
    (forged / "elite.py").write_text((forged / "elite.py").read_text() + "# another\n")
    sha256 = hashlib.sha256((forged / "elite.py").read_bytes()).hexdigest()
    edit(forged / "evaluations.json", -1, "evaluation", "source_sha256", value=sha256)
    reseal(forged)
    with pytest.raises(ConfigError, match="start another run with --run NAME"):
        take_in(forged, tmp_path / "new.db")
    outcome, _ = take_in(forged, tmp_path / "new.db", run="another")
    assert outcome.best is not None and outcome.best.candidate.source_sha256 == sha256


def test_a_folder_of_bundles_and_of_kernels_is_taken_in_whole(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    shutil.copytree(exported / "bundle", tmp_path / "many" / "a")
    broken = Path(shutil.copytree(exported / "bundle", tmp_path / "many" / "b"))
    (broken / "elite.py").write_text("")
    outcome, _ = take_in(tmp_path / "many", tmp_path / "new.db", NAME)
    assert outcome.seeded is not None and outcome.seeded.taken == 1
    assert any("b/elite.py does not fit its checksum" in line for line in outcome.seeded.left_out)
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    for number in range(3):
        (kernels / f"{number}.py").write_text(f"{problem().seed}\n# {number}\n")
    outcome, _ = take_in(kernels, tmp_path / "new.db", NAME)
    assert outcome.seeded is not None and outcome.seeded.taken == 3


def test_seeds_of_another_run_may_be_bundles(exported: Path, tmp_path: Path) -> None:
    searched(tmp_path / "new.db", seeds=(str(exported / "bundle"),))
    with open_store(tmp_path / "new.db", read_only=True) as store:
        history = store.history(store.runs()[0].id)
    sown = [one for one in history if ORIGIN in one.candidate.details]
    assert [one.candidate.source for one in sown] == [(exported / "bundle" / "elite.py").read_text()]
    assert "in the bundle" in sown[0].candidate.rationale


def test_a_bundle_of_another_problem_or_backend_is_left_out_with_the_reason(exported: Path, tmp_path: Path) -> None:
    for ref, options, reason in (
        ("softmax", {}, "its problem is row_variance"),
        (NAME, {"backend": "triton", "device": "cpu"}, "its kernel is for backend cpp"),
    ):
        with pytest.raises(ConfigError, match=reason):
            take_in(exported / "bundle", tmp_path / "new.db", ref, **options)


def test_a_bundles_own_problem_is_taken_only_where_it_is_known_here(exported: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported / "bundle", tmp_path / "bundle"))
    edit(folder / "bundle.json", "problem", "id", value="softmax")
    reseal(folder)
    with pytest.raises(ConfigError, match="not one that is known here"):
        take_in(folder, tmp_path / "new.db")
    outcome, _ = take_in(folder, tmp_path / "new.db", str(folder / "problem.py"))
    assert outcome.best is not None


def test_names_in_a_bundle_cannot_reach_the_terminal_or_lead_astray(exported: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported / "bundle", tmp_path / "bundle"))
    evil = "../\x1b[2J\u202eevil"
    edit(folder / "bundle.json", "run", "name", value=evil)
    edit(folder / "bundle.json", "elite", value=evil)
    edit(folder / "evaluations.json", -1, "candidate", value=evil)
    reseal(folder)
    outcome, told = take_in(folder, tmp_path / "new.db")
    assert outcome.best is not None
    shown = outcome.run.name + told[0].candidate.rationale + json.dumps(told[0].candidate.details, ensure_ascii=False)
    assert not {"\x1b", "\u202e"} & set(shown) and "/" not in outcome.run.name


def test_what_a_bundle_claims_is_not_believed(exported: Path, tmp_path: Path) -> None:
    wrong = Landscape(failures=(Failure("ModelNew", Verdict.WRONG_RESULT),))
    outcome, _ = take_in(exported / "bundle", tmp_path / "new.db", landscape=wrong)
    assert outcome.best is None and outcome.verdicts == {"wrong_result": 1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("KERNELS",), "which problem are the kernels of"),
        (("none.py",), "there is no none.py"),
        (("KERNELS", "--problem", "nobody"), "no bundled problem is named"),
        (("EMPTY", "--problem", NAME), "there is no .py file in it"),
        (("BAD", "--problem", NAME), "does not fit its checksum"),
        (("DATABASE", "--problem", NAME), "taken for a database, and --problem goes with kernels"),
        (("ARCHIVE",), "Unpack an archive first"),
        (("INDEX",), "name the folder"),
    ],
)
def test_what_cannot_be_imported_is_told_with_exit_code_2(
    exported: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    bad = Path(shutil.copytree(exported / "bundle", tmp_path / "bad"))
    (bad / "elite.py").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bundle.tar.gz").write_bytes(b"\x1f\x8b\x08")
    places = {"ARCHIVE": tmp_path / "bundle.tar.gz", "INDEX": bad / "bundle.json"}
    places |= {"KERNELS": exported, "EMPTY": tmp_path / "empty", "BAD": bad, "DATABASE": exported / "kb.db"}
    result = kb("import", *(places.get(word, word) for word in arguments), "--db", tmp_path / "new.db")
    assert result.exit_code == 2 and said in result.stderr, result.output


def test_files_whose_names_are_no_text_come_in_under_names_that_are(tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b.py"))
    file.write_text(f"{problem().seed}# mine\n")
    outcome, told = take_in(file, tmp_path / "new.db", NAME)
    assert outcome.run.name == r"import-\udcff\x1b" and outcome.best is not None
    (one,) = [one for one in told if ORIGIN in one.candidate.details]
    assert one.candidate.source.endswith("# mine\n")


def test_reasons_with_a_strangers_file_names_in_them_hide_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "\x1b[2J\u202eevil.py").write_text("x = 1")
    result = kb("import", folder, "--problem", NAME, "--db", tmp_path / "new.db")
    assert result.exit_code == 2 and "defines no ModelNew" in result.stderr
    assert not {"\x1b", "\u202e"} & set(result.stderr)
