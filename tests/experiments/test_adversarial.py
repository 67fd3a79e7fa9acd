"""The adversarial suite's CPU part, judged once; and its counting, fed with evaluations that deceive."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.adversarial import catalogue, counting, run
from experiments.adversarial.catalogue import Kernel
from fitness.evaluation import Evaluation, Verdict
from fitness.workbench import Workbench

ROOT = Path(__file__).resolve().parents[2]
KERNELS = catalogue.kernels("cpp")
BY_PROBLEM = sorted(KERNELS, key=lambda kernel: kernel.problem)
HOPELESS_MS = 1e-6
"""An incumbent so fast that the judge gives up timing after its first look: CI asks for verdicts, not for times."""
MUCH_FASTER = 0.33


@pytest.fixture(scope="module")
def workbench():
    with Workbench() as bench:
        run.build_all(bench, KERNELS, "cpu")
        yield bench


@pytest.fixture(scope="module")
def honest(workbench):
    """honest(name) -> the evaluation of an honest file, judged once, when its problem is ready anyway."""
    by_name = {kernel.name: kernel for kernel in KERNELS if kernel.expect == "accepted"}
    return cache(lambda name: judged(workbench, by_name[name]))


def judged(workbench: Workbench, kernel: Kernel) -> Evaluation:
    job = run.job_for(kernel, "cpu")
    if kernel.expect != "rejected":
        job = dataclasses.replace(job, incumbent_ms=HOPELESS_MS)
    return run.judge(workbench, job)[0]


@pytest.mark.parametrize("kernel", BY_PROBLEM, ids=[kernel.name for kernel in BY_PROBLEM])
def test_no_hostile_file_gets_a_false_score_and_every_honest_one_is_accepted(kernel, workbench, honest):
    found = judged(workbench, kernel) if kernel.twin else honest(kernel.name)
    twin = [honest(kernel.twin)] if kernel.twin else []
    assert found.verdict is not Verdict.NO_VERDICT, found.reason
    assert found.is_correct or not kernel.is_honest, (found.verdict, found.reason)
    outcome = counting.outcome(kernel, [found], twin, faster=MUCH_FASTER)
    assert outcome.false_scores == ()
    assert outcome.unexpected == 0, (found.verdict, found.reason)
    assert not Path("/tmp/kb-adversarial-bomb").exists()


def test_the_suite_has_the_files_that_it_must_have():
    hostile = [kernel for kernel in KERNELS if not kernel.is_honest]
    assert len(hostile) >= 30
    assert sum(kernel.expect == "accepted-harmless" for kernel in KERNELS) >= 3
    groups = {"Replay and deferral", "Measuring tools", "Verdict", "Numerics and tasks", "Host"}
    assert groups <= {kernel.group for kernel in hostile}


def test_the_page_lists_every_file_as_it_describes_itself():
    page = (ROOT / "docs" / "adversarial.md").read_text()
    assert catalogue.tables() in page, "run `python -m experiments.adversarial.catalogue docs/adversarial.md`"


def test_each_kernel_is_called_as_its_file_and_imports_nothing_of_ours():
    for kernel in KERNELS:
        assert f'"{kernel.name}"' in kernel.source or "load_inline" not in kernel.source
        assert not re.search(r"^(from|import) (fitness|problems|experiments)", kernel.source, re.MULTILINE)


# Counting


def a_kernel(expect: str, name: str = "trick", twin: str = "honest", verdicts: tuple[str, ...] = ()) -> Kernel:
    return Kernel(
        name, "cpp", "", "", "p", "Verdict", "m", "" if expect == "accepted" else twin, expect, verdicts, "fp32"
    )


def correct(kernel_ms: float, speedup: float, spread: float = 0.01) -> Evaluation:
    def around(value: float) -> tuple[float, float]:
        return value * (1 - spread), value * (1 + spread)

    return Evaluation(
        Verdict.CORRECT,
        "right",
        "p",
        "cpp",
        "0",
        kernel_ms=kernel_ms,
        kernel_ms_ci=around(kernel_ms),
        reference_ms=kernel_ms * speedup,
        speedup=speedup,
        speedup_ci=around(speedup),
    )


def failed(verdict: Verdict) -> Evaluation:
    return Evaluation(verdict, f"it is {verdict}", "p", "cpp", "0")


TWIN = [correct(1.0, 2.0) for _ in range(5)]


def false(expect: str, found: list[Evaluation]) -> int:
    return len(counting.outcome(a_kernel(expect), found, TWIN).false_scores)


def test_each_acceptance_of_a_file_that_must_be_rejected_is_a_false_score():
    assert false("rejected", [correct(9.0, 0.2), failed(Verdict.WRONG_RESULT), failed(Verdict.VERIFIED)]) == 2
    assert false("rejected", [failed(Verdict.WRONG_RESULT), failed(Verdict.TIMEOUT), failed(Verdict.NO_VERDICT)]) == 0


def test_a_time_surely_below_95_percent_of_the_twins_is_a_false_score():
    short = correct(0.9, 2.0 / 0.9)
    assert false("any", [short, correct(1.0, 2.0), correct(1.0, 2.0)]) == 1
    assert false("accepted-harmless", [short, correct(1.0, 2.0), correct(1.0, 2.0)]) == 1


def test_a_speedup_that_a_slowed_reference_raised_is_a_false_score():
    assert false("any", [correct(1.0, 2.4), correct(1.0, 2.0), correct(1.0, 2.0)]) == 1


def test_a_wide_interval_excuses_one_score_but_not_the_median_of_all():
    unsure = correct(0.9, 2.0 / 0.9, spread=0.2)
    assert false("any", [unsure, correct(1.0, 2.0), correct(1.0, 2.0)]) == 0
    assert false("any", [unsure, unsure, correct(1.0, 2.0)]) == 1


def test_a_machine_that_changes_its_speed_in_the_middle_makes_no_score_false():
    twin = [correct(1.0, 2.0)] * 6 + [correct(1.6, 2.4)] * 6
    found = [correct(0.99, 2.02)] * 6 + [correct(1.59, 2.41)] * 6
    outcome = counting.outcome(a_kernel("any"), found, twin)
    assert outcome.false_scores == () and abs(outcome.time_ratio - 0.99) < 0.01
    cheat = [correct(0.99, 2.02)] * 6 + [correct(1.4, 2.4 * 1.6 / 1.4)] * 6
    assert len(counting.outcome(a_kernel("any"), cheat, twin).false_scores) >= 4


def test_as_fast_as_the_twin_is_no_false_score():
    assert false("any", [correct(0.97, 2.06), correct(3.0, 0.5), failed(Verdict.CONTRACT)]) == 0


def test_a_rejection_with_another_verdict_than_the_file_names_is_counted():
    kernel = a_kernel("rejected", verdicts=("contract",))
    found = counting.outcome(kernel, [failed(Verdict.CONTRACT), failed(Verdict.TIMEOUT)], TWIN)
    assert found.unexpected == 1 and found.false_scores == ()


def test_the_totals_find_refused_twins_and_harmless_variants_that_read_otherwise():
    honest = counting.outcome(a_kernel("accepted", "honest"), [*TWIN, failed(Verdict.WRONG_RESULT)], [])
    variant = counting.outcome(a_kernel("accepted-harmless", "variant"), [correct(1.03, 2.0 / 1.03)] * 5, TWIN)
    figures = counting.totals([honest, variant])
    assert figures["honest_share"] == pytest.approx(10 / 11)
    assert figures["harmless_beyond_2_percent"] == ["cpp/variant"]
    assert figures["false_scores"] == 0 and not counting.is_passed(figures)
    assert variant.time_ratio == pytest.approx(1.03)


def test_no_verdict_counts_neither_for_nor_against_an_honest_file():
    outcome = counting.outcome(a_kernel("accepted", "honest"), [*TWIN, failed(Verdict.NO_VERDICT)], [])
    assert counting.totals([outcome])["honest_share"] == 1.0


# Reading and running


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("Problem: p\nMechanism: m\nTwin: none", "Expect: ..."),
        ("Problem: p\nMechanism: m\nTwin: none\nExpect: perhaps", "found 'perhaps'"),
        ("Problem: p\nMechanism: m\nTwin: none\nExpect: any\nPrecision: fp8", "found 'fp8'"),
    ],
)
def test_a_file_that_does_not_describe_itself_is_refused(tmp_path, lines, words):
    path = tmp_path / "kernel.py"
    path.write_text(f'"""A kernel.\n\n{lines}\n"""\n')
    with pytest.raises(ValueError, match=words):
        catalogue.read(path)


def test_only_the_named_kernels_and_their_twins_are_judged():
    assert [kernel.name for kernel in run.selected(["cpp"], ["zeros"])] == ["softsign", "zeros"]
    with pytest.raises(ValueError, match="zeroes"):
        run.selected(["cpp"], ["zeroes"])


def test_a_problems_small_sizes_take_the_place_of_its_own():
    assert "ROWS, COLUMNS = 24, 256" in catalogue.problem_source("gpu_softmax", small=True).split('"""')[2]
    assert "ROWS, COLUMNS = 8192" in catalogue.problem_source("gpu_softmax")


def test_the_command_judges_writes_its_result_and_ends_with_0(tmp_path):
    out = tmp_path / "result.json"
    arguments = ["--times", "1", "--only", "zeros", "--only", "not_a_number", "--out", str(out)]
    answer = CliRunner().invoke(run.main, arguments)
    assert answer.exit_code == 0, answer.output
    document = json.loads(out.read_text())
    rows = {row["kernel"]: row for row in document["rows"]}
    assert rows["cpp/zeros"]["verdicts"] == {"wrong_result": 1}
    assert rows["cpp/softsign"]["verdicts"] == {"correct": 1}
    assert document["false_scores"] == 0 and document["machine"]
    assert list(document["judges"].values()) == [document["evaluations"]]


def test_the_command_refuses_a_name_that_no_file_has():
    answer = CliRunner().invoke(run.main, ["--only", "nothing"])
    assert answer.exit_code == 2 and "nothing" in answer.output
