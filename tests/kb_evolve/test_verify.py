"""`kb-evolve verify`: what judging a bundle again answers."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from export_makers import bundle_of, edit, reseal, searched

from fitness.evaluation import Evaluation, Job, Verdict
from fitness.replay import Failure, Landscape, Replay, bowl
from kb_evolve.commands.verify import EXIT_CODES, answer_text
from kb_evolve.export.opened import Bundle, read_bundle
from kb_evolve.export.rejudge import Answer, Word, compare, config_of, rejudge
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


@pytest.mark.parametrize(
    ("factors", "word"),
    [
        ((3.0, 3.0), Word.DIFFERS),
        ((3.0, 1.0, 1.0, 1.0, 1.0), Word.TOO_NOISY),
        ((1.0,), Word.AGREES),
        ((1.12, 0.98), Word.AGREES),
    ],
)
def test_one_bad_measurement_is_no_difference_and_two_equal_ones_are(
    bundle: Path, factors: tuple[float, ...], word: Word
) -> None:
    left = list(factors)
    _, answer = answer_of(bundle, Landscape(kernel_ms=lambda reading: bowl(reading) * left.pop(0)))
    assert answer.word is word, answer.reason
    assert left == [] and answer.here.rounds == 20 * len(factors)


def test_a_claim_that_is_too_noisy_itself_is_not_judged_over_and_over(bundle: Path) -> None:
    speedup = read_bundle(bundle).claim.speedup
    assert speedup is not None
    edit(bundle / "evaluations.json", -1, "evaluation", "speedup_ci", value=[speedup / 2, speedup * 2])
    reseal(bundle)
    _, answer = answer_of(bundle)
    assert answer.word is Word.TOO_NOISY and "most of that is the claim's noise" in answer.reason
    assert answer.here.rounds == 20


def test_one_judgement_alone_never_says_that_a_speedup_differs(bundle: Path) -> None:
    times = iter(range(9))

    class Once(Replay):
        def evaluate(self, job: Job) -> Evaluation:
            failures = () if next(times) == 0 else (Failure("ModelNew", Verdict.NO_VERDICT),)
            return Replay(Landscape(kernel_ms=lambda reading: 3 * bowl(reading), failures=failures)).evaluate(job)

    opened = read_bundle(bundle)
    answer = rejudge(opened, Once(), settle(config_of(opened, device=None, arch=None, sandbox=None)))
    assert answer.word is Word.NO_ANSWER and answer.agrees is None


@pytest.mark.parametrize("verdict", [Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY])
@pytest.mark.parametrize(("times", "word"), [(1, Word.AGREES), (None, Word.DIFFERS)])
def test_a_failure_that_may_be_the_machines_is_looked_at_twice(
    bundle: Path, verdict: Verdict, times: int | None, word: Word
) -> None:
    _, answer = answer_of(bundle, Landscape(failures=(Failure("ModelNew", verdict, times=times),)))
    assert answer.word is word, answer.reason


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
    ("here", "word"),
    [
        (evaluation(2.0, 1.9, 2.1), Word.AGREES),
        (evaluation(2.15, 2.05, 2.25), Word.AGREES),
        (evaluation(1.85, 1.75, 1.95), Word.AGREES),
        (evaluation(2.09, 2.0899, 2.0901), Word.AGREES),
        (evaluation(2.25, 2.18, 2.32), Word.TOO_NOISY),
        (evaluation(2.0, 1.4, 2.9), Word.TOO_NOISY),
        (evaluation(1.2, 0.7, 2.2), Word.TOO_NOISY),
        (evaluation(2.4, 2.3, 2.5), Word.DIFFERS),
        (evaluation(1.6, 1.5, 1.7), Word.DIFFERS),
        (evaluation(0.1, 0.07, 0.15), Word.DIFFERS),
    ],
)
def test_speedups_agree_within_error_and_tolerance_differ_beyond_99_percent_and_are_else_too_noisy(
    here: Evaluation, word: Word
) -> None:
    found, reason = compare(evaluation(2.0, 1.9, 2.1), here)
    assert found is word, reason
    assert f"{here.speedup:.3g}x" in reason and "2x [1.9, 2.1] claimed" in reason


def test_a_claim_with_an_endless_interval_does_not_agree_with_everything() -> None:
    word, reason = compare(evaluation(9.0, 0.5, 100.0), evaluation(2.0, 1.99, 2.01))
    assert word is Word.TOO_NOISY and "most of that is the claim's noise" in reason


@pytest.mark.parametrize(
    ("name", "said"), [("device_name", "devices"), ("baseline", "base"), ("protocol", "protocols")]
)
def test_speedups_of_another_device_baseline_or_protocol_are_not_compared(name: str, said: str) -> None:
    word, reason = compare(evaluation(2.0, 1.9, 2.1), evaluation(9.0, 8.9, 9.1, **{name: "another"}))
    assert word is Word.AGREES and f"speedups of different {said}" in reason and "another here" in reason


def test_honest_noise_is_hardly_ever_told_to_differ_and_a_boast_of_half_as_much_again_always_is() -> None:
    noise = random.Random(7)
    words = {True: Counter[Word](), False: Counter[Word]()}
    for _ in range(2_000):
        for honest, truth in ((True, 2.0), (False, 3.0)):
            claim, here = (
                evaluation(speedup, speedup * math.exp(-1.96 * error), speedup * math.exp(1.96 * error))
                for centre, error in ((truth, 0.02), (2.0, 0.04))
                for speedup in (centre * math.exp(noise.gauss(0.0, error)),)
            )
            words[honest][compare(claim, here)[0]] += 1
    assert words[True][Word.DIFFERS] <= 2 and words[True][Word.AGREES] > 1_950
    assert words[False] == {Word.DIFFERS: 2_000}


def test_what_was_verified_and_not_timed_agrees_in_the_verdict() -> None:
    times = dict.fromkeys(("kernel_ms", "kernel_ms_ci", "reference_ms", "speedup", "speedup_ci"))
    here = dataclasses.replace(evaluation(1.0, 0.9, 1.1), verdict=Verdict.VERIFIED, **times)
    word, reason = compare(evaluation(2.0, 1.9, 2.1), here)
    assert word is Word.AGREES and "the verdict agrees" in reason


class Sittings:
    """A workbench whose judgements of one kernel of 2x scatter more from one to the next than each of them knows."""

    def __init__(self, scatter: float, seed: int) -> None:
        self.scatter, self.noise = scatter, random.Random(seed)

    def evaluate(self, job: Job | None = None, truth: float = 2.0) -> Evaluation:
        speedup = truth * math.exp(self.noise.gauss(0.0, math.hypot(self.scatter, 0.01)))
        return evaluation(speedup, speedup * math.exp(-0.0196), speedup * math.exp(0.0196))


@pytest.mark.parametrize(
    ("scatter", "truth", "wrong", "most"),
    [
        (0.02, 2.0, Word.DIFFERS, 1),
        (0.08, 2.0, Word.DIFFERS, 4),
        (0.02, 3.0, Word.AGREES, 0),
        (0.08, 3.0, Word.AGREES, 4),
    ],
)
def test_sittings_that_scatter_more_than_their_intervals_say_are_no_difference(
    bundle: Path, scatter: float, truth: float, wrong: Word, most: int
) -> None:
    opened, bench, words = read_bundle(bundle), Sittings(scatter, seed=5), Counter[Word]()
    config = settle(config_of(opened, device=None, arch=None, sandbox=None))
    for _ in range(100):
        claimed = dataclasses.replace(opened, claim=bench.evaluate(truth=truth))
        words[rejudge(claimed, bench, config).word] += 1  # type: ignore[arg-type]
    assert words[wrong] <= most, words
    if scatter < 0.05:
        assert words[Word.AGREES if truth == 2.0 else Word.DIFFERS] >= 95, words


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


@pytest.mark.parametrize(
    "landscape",
    [
        Landscape(kernel_ms=lambda reading: 3 * bowl(reading)),
        Landscape(failures=(Failure("ModelNew", Verdict.TIMEOUT),)),
    ],
)
def test_on_a_busy_machine_a_slower_kernel_is_too_noisy_to_tell(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, landscape: Landscape
) -> None:
    loads = iter([500.0])
    monkeypatch.setattr("os.getloadavg", lambda: (next(loads, 0.0), 0.0, 0.0))
    opened, answer = answer_of(bundle, landscape)
    assert answer.word is Word.TOO_NOISY and "a load of 500.0" in answer.reason
    assert answer_text(opened, answer).startswith("too noisy to tell: ")
    assert EXIT_CODES[answer.agrees] == 3 and answer.to_json(opened)["answer"] == "too noisy to tell"


def test_a_wrong_kernel_differs_on_a_busy_machine_too(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (500.0, 0.0, 0.0))
    _, answer = answer_of(bundle, Landscape(failures=(Failure("ModelNew", Verdict.WRONG_RESULT),)))
    assert answer.word is Word.DIFFERS


def test_files_that_no_checksum_names_are_told_and_not_read(bundle: Path) -> None:
    (bundle / "lineage" / "evil.py").write_text("raise SystemExit\n")
    (bundle / "link").symlink_to("/etc/passwd")
    os.mkfifo(bundle / "pipe")
    _, answer = answer_of(bundle)
    assert answer.word is Word.AGREES
    assert answer.notes == ("files that no checksum names, not looked at: lineage/evil.py, link, pipe",)
    (bundle / "\x1b[2J\u202e.py").write_text("")
    assert not {"\x1b", "\u202e"} & set(answer_text(*answer_of(bundle)))


@pytest.mark.parametrize(("load", "is_told"), [(0.5, False), (500.0, True)])
def test_a_busy_machine_is_told(bundle: Path, monkeypatch: pytest.MonkeyPatch, load: float, is_told: bool) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    _, answer = answer_of(bundle)
    assert any("busy" in note for note in answer.notes) is is_told
