"""`kb-evolve verify`: what judging a bundle again answers."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from export_makers import bundle_of, edit, reseal, searched

from fitness.evaluation import Evaluation, Job, Verdict
from fitness.replay import Failure, Landscape, Replay, bowl
from kb_evolve.commands.verify import answer_text
from kb_evolve.export.opened import Bundle, read_bundle
from kb_evolve.export.rejudge import Answer, compare, config_of, rejudge
from kb_evolve.export.sealed import BundleError
from kb_evolve.targets import settle
from problems.problem import ProblemError


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does nothing else, whatever this one does."""
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))


@pytest.fixture(scope="module")
def original(memory_dir: Path) -> Path:
    """A bundle, made once."""
    home = memory_dir / "verified"
    home.mkdir()
    searched(home / "kb.db")
    return bundle_of(home / "kb.db", home / "bundle")


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(original, tmp_path / "bundle"))


def answer_of(bundle: Path, landscape: Landscape | None = None) -> tuple[Bundle, Answer]:
    opened = read_bundle(bundle)
    config = settle(config_of(opened, device=None, arch=None, sandbox=None))
    return opened, rejudge(opened, Replay(landscape or Landscape()), config)


def test_the_same_kernel_on_the_same_device_agrees(bundle: Path) -> None:
    opened, answer = answer_of(bundle)
    assert answer.agrees is True and answer.reason.startswith("verdict and speedup agree")
    document = answer.to_json(opened)
    assert document["agrees"] is True
    assert document["claimed"]["speedup"] == document["here"]["speedup"]
    assert answer.notes == ()


def test_a_boast_is_told_with_both_figures(bundle: Path) -> None:
    evaluation = json.loads((bundle / "evaluations.json").read_text())[-1]["evaluation"]
    for name in ("speedup", "speedup_ci"):
        value = evaluation[name]
        edit(
            bundle / "evaluations.json",
            -1,
            "evaluation",
            name,
            value=[3 * one for one in value] if isinstance(value, list) else 3 * value,
        )
    reseal(bundle)
    _, answer = answer_of(bundle)
    assert answer.agrees is False
    assert "the speedup does not" in answer.reason and "66.7% slower than claimed" in answer.reason


def test_one_bad_measurement_is_no_difference_and_two_equal_ones_are(bundle: Path) -> None:
    for factors, agrees in (((3.0, 1.0), True), ((3.0, 3.0), False)):
        left = list(factors)
        landscape = Landscape(kernel_ms=lambda reading, left=left: bowl(reading) * left.pop(0))
        _, answer = answer_of(bundle, landscape)
        assert answer.agrees is agrees, answer.reason
        assert left == [] and answer.here.rounds == 40


def test_a_kernel_that_fails_when_it_is_judged_twice_differs(bundle: Path) -> None:
    calls: list[int] = []

    class Flaky(Replay):
        def evaluate(self, job: Job) -> Evaluation:
            calls.append(1)
            factor = 3.0 if len(calls) == 1 else 1.0
            failures = (Failure("ModelNew", Verdict.WRONG_RESULT),) if len(calls) == 2 else ()
            return Replay(Landscape(kernel_ms=lambda reading: factor * bowl(reading), failures=failures)).evaluate(job)

    opened = read_bundle(bundle)
    answer = rejudge(opened, Flaky(), settle(config_of(opened, device=None, arch=None, sandbox=None)))
    assert answer.agrees is False and "wrong_result" in answer.reason


def test_a_kernel_that_is_wrong_here_differs(bundle: Path) -> None:
    _, answer = answer_of(bundle, Landscape(failures=(Failure("ModelNew", Verdict.WRONG_RESULT),)))
    assert answer.agrees is False and "claimed correct, here wrong_result" in answer.reason


@pytest.mark.parametrize(("disturbed", "agrees"), [(1, True), (2, True), (None, None)])
def test_a_judgement_that_noise_disturbed_is_made_again_until_it_is_no_answer(
    bundle: Path, disturbed: int | None, agrees: bool | None
) -> None:
    noise = Failure("ModelNew", Verdict.NO_VERDICT, times=disturbed)
    _, answer = answer_of(bundle, Landscape(failures=(noise,)))
    assert answer.agrees is agrees
    assert ("there is no verdict here" in answer.reason) is (agrees is None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("softmax", "the problem is NOT the softmax that is known here"),
        ("nobody", "no problem named nobody is known here"),
        ("/etc/passwd", "no problem named /etc/passwd is known here"),
    ],
)
def test_a_problem_that_is_not_the_one_of_its_name_here_is_told(bundle: Path, name: str, said: str) -> None:
    edit(bundle / "bundle.json", "problem", "id", value=name)
    reseal(bundle)
    _, answer = answer_of(bundle)
    assert [said in note for note in answer.notes] == [True]


def test_what_a_bundle_says_of_sandboxes_is_not_heard(bundle: Path) -> None:
    edit(bundle / "environment.json", "config", "judge", "sandbox", value="none")
    reseal(bundle)
    assert config_of(read_bundle(bundle), device=None, arch=None, sandbox=None).judge.sandbox == "auto"


def evaluation(speedup: float, low: float, high: float, **fields: Any) -> Evaluation:
    values = {"verdict": Verdict.CORRECT, "reason": "r", "problem": "p", "backend": "cpp", "source_sha256": "0"}
    times = {"kernel_ms": 1.0, "kernel_ms_ci": (1.0, 1.0), "reference_ms": speedup, "device_name": "d"}
    return Evaluation(**{**values, **times, "speedup": speedup, "speedup_ci": (low, high), **fields})


@pytest.mark.parametrize(
    ("here", "agrees"),
    [
        (evaluation(2.0, 1.9, 2.1), True),
        (evaluation(2.15, 2.05, 2.25), True),
        (evaluation(1.85, 1.75, 1.95), True),
        (evaluation(2.4, 2.3, 2.5), False),
        (evaluation(1.6, 1.5, 1.7), False),
        (evaluation(9.0, 8.9, 9.1, device_name="another"), True),
        (evaluation(9.0, 8.9, 9.1, baseline="another"), True),
    ],
)
def test_speedups_agree_where_their_intervals_meet_and_only_on_one_device(here: Evaluation, agrees: bool) -> None:
    claim = evaluation(2.0, 1.9, 2.1)
    assert compare(claim, here)[0] is agrees
    if here.device_name == "another":
        assert "speedups of different devices are not compared" in compare(claim, here)[1]


def test_what_was_verified_and_not_timed_agrees_in_the_verdict() -> None:
    times = dict.fromkeys(("kernel_ms", "kernel_ms_ci", "reference_ms", "speedup", "speedup_ci"))
    here = dataclasses.replace(evaluation(1.0, 0.9, 1.1), verdict=Verdict.VERIFIED, **times)
    agrees, reason = compare(evaluation(2.0, 1.9, 2.1), here)
    assert agrees is True and "the verdict agrees" in reason


class Failing:
    """A workbench on which the problem's own code fails, as the real one says it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def evaluate(self, job: Job) -> Evaluation:
        raise ProblemError(self.text)


def test_a_problem_that_fails_makes_a_bad_bundle_and_its_words_stay_words(bundle: Path) -> None:
    opened = read_bundle(bundle)
    config = settle(config_of(opened, device=None, arch=None, sandbox=None))
    with pytest.raises(BundleError, match="cannot be judged") as caught:
        rejudge(opened, Failing("\x1b[2J\u202eno"), config)  # type: ignore[arg-type]
    assert not {"\x1b", "\u202e"} & set(str(caught.value))


def test_a_cuda_kernel_is_built_once_where_no_gpu_is_and_that_is_no_answer(bundle: Path) -> None:
    edit(bundle / "bundle.json", "backend", value="cuda")
    reseal(bundle)
    bench = Replay(Landscape(failures=(Failure("ModelNew", Verdict.NO_VERDICT),)))
    opened = read_bundle(bundle)
    answer = rejudge(opened, bench, config_of(opened, device="cpu", arch=None, sandbox=None))
    assert answer.agrees is None
    assert [span.stage for span in bench.spans] == ["build", "measure"]


def test_the_printed_answer_has_nothing_hidden_in_it(bundle: Path) -> None:
    evil = "\x1b[2J\u202eevil\r"
    edit(bundle / "bundle.json", "run", "name", value=evil)
    edit(bundle / "evaluations.json", -1, "evaluation", "device_name", value=evil)
    edit(bundle / "evaluations.json", -1, "evaluation", "sandbox", value=evil)
    reseal(bundle)
    opened, answer = answer_of(bundle)
    text = answer_text(opened, answer)
    assert text.startswith("agrees: the verdict agrees; speedups of different devices are not compared")
    assert not set("\x1b\u202e\r") & set(text)
    assert opened.candidate_id in text and "note         another sandbox" in text


@pytest.mark.parametrize(("load", "is_told"), [(0.5, False), (500.0, True)])
def test_a_busy_machine_is_told(bundle: Path, monkeypatch: pytest.MonkeyPatch, load: float, is_told: bool) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    _, answer = answer_of(bundle)
    assert any("busy" in note for note in answer.notes) is is_told
