"""Series in TensorBoard's own files are the fold of the run's record, whole after a kill, without a step twice."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fitness.replay import Landscape, Replay
from islands.store import open_store
from kb_evolve import tracking
from kb_evolve.cli import add_commands, cli
from kb_evolve.config import ConfigError, resolve
from kb_evolve.search import Search
from kb_evolve.standing import best_of
from kb_evolve.tracking import Series, Step, check_tracking
from problems.problem import Problem

Found = dict[str, list[tuple[int, float]]]


def search(problem: Problem, db: Path, evaluations: int, *targets: str) -> list[str]:
    """Runs or resumes the run `night`; what it warned of."""
    one = Search(
        problem, db=str(db), run="night", workbench=Replay(Landscape()), evaluations=evaluations,
        mutators=("tune",), track=targets,
    )  # fmt: skip
    warnings: list[str] = []
    one.warn = warnings.append
    one.run()
    return warnings


def scalars(folder: Path) -> Found:
    """(step, value) of every scalar that TensorBoard's own reader finds, in the order of the files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (run,) = folder.iterdir()
    reader = EventAccumulator(str(run), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def folded(db: Path) -> Found:
    """The same from the database alone."""
    found: Found = defaultdict(list)
    with open_store(db, read_only=True) as store:
        series = Series(store, store.runs()[0].id)
        for step in [*series.read(), *series.rest()]:
            for name, value in step.metrics.items():
                found[name].append((step.number, value))
    return dict(found)


def assert_same(found: Found, expected: Found) -> None:
    assert found.keys() == expected.keys()
    for tag, points in expected.items():
        assert [step for step, _ in found[tag]] == [step for step, _ in points], tag
        assert [value for _, value in found[tag]] == pytest.approx([value for _, value in points], rel=1e-6), tag


needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="needs the extra `tensorboard`"
)
needs_mlflow = pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs the extra `mlflow`")


@needs_tensorboard
def test_a_resumed_run_goes_on_with_the_same_series_and_repeats_no_step(tmp_path: Path, toy_problem: Problem) -> None:
    db, folder = tmp_path / "kb.db", tmp_path / "curves"
    assert search(toy_problem, db, 12, f"tensorboard:{folder}") == []
    first = scalars(folder)
    assert search(toy_problem, db, 20, f"tensorboard:{folder}") == []
    second = scalars(folder)
    for tag, points in first.items():
        assert second[tag][: len(points)] == points, "what was drawn stays"
    steps = [step for step, _ in second["evaluations"]]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) > len(first["evaluations"])
    with open_store(db, read_only=True) as store:
        best = best_of(store, store.runs()[0].id)
        counts = store.counts(store.runs()[0].id)
    assert best is not None and second["best/speedup"][-1][1] == pytest.approx(best.evaluation.speedup, rel=1e-6)
    assert second["verdicts/correct"][-1] == (steps[-1], counts.verdicts["correct"])
    assert second["gains/tune"][-1][1] > 0


@needs_tensorboard
def test_a_file_of_the_same_second_is_read_before_the_next_one(tmp_path: Path, toy_problem: Problem) -> None:
    """Within a second the process id decides; this one is larger than any."""
    track = (f"tensorboard:{tmp_path / 'curves'}",)
    common: dict[str, Any] = {"db": str(tmp_path / "kb.db"), "run": "toy", "mutators": ("tune",), "track": track}
    Search(toy_problem, workbench=Replay(), evaluations=6, **common).run()
    (path,) = (tmp_path / "curves").glob("*/events*")
    path.rename(path.with_name(f"events.out.tfevents.{int(time.time()) + 1}.host.99999999.0"))
    Search(toy_problem, workbench=Replay(), evaluations=12, **common).run()
    assert_same(scalars(tmp_path / "curves"), folded(tmp_path / "kb.db"))


@needs_tensorboard
def test_a_killed_run_is_drawn_whole_when_it_goes_on(
    tmp_path: Path, toy_problem: Problem, start_search: Callable[..., subprocess.Popen[str]]
) -> None:
    db, folder = tmp_path / "kb.db", tmp_path / "curves"
    child = start_search(db, evaluations=500, mutators=("tune",), track=(f"tensorboard:{folder}",))
    deadline_s = time.monotonic() + 60
    while not list(folder.glob("*/events*")) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    (path,) = folder.glob("*/events*")
    with path.open("ab") as file:
        file.write(b"\x20\x00\x00")  # and a record is torn
    with open_store(db, read_only=True) as store:
        measured = store.counts(store.runs()[0].id).measured
    one = Search(
        toy_problem, db=str(db), run="toy", workbench=Replay(), evaluations=measured + 5, mutators=("tune",),
        track=(f"tensorboard:{folder}",),
    )  # fmt: skip
    warnings: list[str] = []
    one.warn = warnings.append
    one.run()
    assert warnings == []
    assert_same(scalars(folder), folded(db))


@needs_mlflow
def test_mlflow_holds_the_same_series_over_a_resumption(
    tmp_path: Path, toy_problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow 3 wants a database or a server otherwise
    from mlflow.tracking import MlflowClient

    db, uri = tmp_path / "kb.db", f"file://{tmp_path}/mlruns"
    for evaluations in (8, 12):
        assert search(toy_problem, db, evaluations, f"mlflow:{uri}") == []
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("kb_evolve toy")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params["backend"]) == ("night", "FINISHED", "cpp")
    held = {
        tag: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, tag)]
        for tag in run.data.metrics
    }
    assert_same(held, folded(db))


def test_the_fold_counts_verdicts_and_gives_the_elite_of_the_record(tmp_path: Path, toy_problem: Problem) -> None:
    db = tmp_path / "kb.db"
    search(toy_problem, db, 20)
    found = folded(db)
    with open_store(db, read_only=True) as store:
        run_id = store.runs()[0].id
        history, best, counts = store.history(run_id), best_of(store, run_id), store.counts(run_id)
    assert best is not None and found["best/speedup"][-1] == (len(history), best.evaluation.speedup)
    assert found["evaluations"][-1] == (len(history), counts.measured) and counts.measured == 20
    verdicts = Counter(str(one.evaluation.verdict) for one in history)
    assert {name: points[-1][1] for name, points in found.items() if name.startswith("verdicts/")} == {
        f"verdicts/{name}": count for name, count in verdicts.items()
    }


def test_the_series_read_while_the_run_grows_is_the_series_read_at_once(tmp_path: Path, toy_problem: Problem) -> None:
    db, piece_by_piece, steps = tmp_path / "kb.db", [], []
    search(toy_problem, db, 5)
    with open_store(db, read_only=True) as store:
        series = Series(store, store.runs()[0].id)
        for evaluations in (10, 15, 20):
            steps += series.read()
            search(toy_problem, db, evaluations)
        piece_by_piece = [*steps, *series.read(), *series.rest()]
        whole = Series(store, store.runs()[0].id)
        assert piece_by_piece == [*whole.read(), *whole.rest()]


@pytest.mark.parametrize("moment", ["open", "write", "close"])
def test_a_tracker_that_fails_is_one_warning_without_its_password(
    tmp_path: Path, toy_problem: Problem, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    class Failing:
        def last_steps(self) -> dict[str, int]:
            return {}

        def write(self, steps: list[Step]) -> None:
            if moment == "write":
                raise OSError("no space left at http://me:T0P@host/x")

        def close(self) -> None:
            raise OSError("no space left at http://me:T0P@host/x")

    def open_failing(*_: Any) -> Failing:
        if moment == "open":
            raise OSError("no space left at http://me:T0P@host/x")
        return Failing()

    monkeypatch.setattr(tracking, "open_tracker", open_failing)
    monkeypatch.setattr(tracking, "PACKAGES", {"tensorboard": "json"})
    (warning,) = search(toy_problem, tmp_path / "kb.db", 8, "tensorboard:x")
    assert "no space left" in warning and "T0P" not in warning and "the search goes on" in warning


@pytest.mark.parametrize(
    ("target", "part"),
    [("wandb:x", "tensorboard:DIR"), ("tensorboard", "tensorboard:DIR"), ("mlflow:", "mlflow:URI")],
)
def test_an_unknown_tracker_is_refused(target: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        check_tracking(resolve({"tracking": {"track": [target]}}))


def test_a_missing_package_is_refused_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "PACKAGES", {"tensorboard": "no_such_module_here"})
    with pytest.raises(ConfigError, match=r"pip install 'kb-evolve\[tensorboard\]'"):
        check_tracking(resolve({"tracking": {"track": ["tensorboard:x"]}}))


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (("--track", "wandb:x"), "tensorboard:DIR"),
        (("--notify-command", "no-such-program-here"), "no-such-program-here"),
        (("--notify-url", "nowhere"), "https://"),
    ],
)
def test_the_command_line_refuses_what_cannot_be_used_with_exit_code_two_and_makes_no_database(
    tmp_path: Path, flags: tuple[str, ...], part: str
) -> None:
    if not cli.commands:
        add_commands()
    db = tmp_path / "kb.db"
    result = CliRunner().invoke(cli, ["run", "softmax", "--db", str(db), *flags])
    assert result.exit_code == 2 and part in result.stderr and not db.exists()
