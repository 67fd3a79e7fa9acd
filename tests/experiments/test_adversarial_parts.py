"""A run of the adversarial suite made in parts: what an earlier part judged is not judged again, and counts."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from click.testing import CliRunner

from experiments.adversarial import counting, run
from experiments.adversarial.catalogue import Kernel
from experiments.adversarial.earlier import EarlierPart
from fitness.evaluation import Evaluation, Verdict

ROW = {"unexpected_verdicts": 0, "requeued": 0, "kernel_ms": 1.0, "time_ratio": 1.01, "time_ratio_ci": [1.0, 1.02]}


def a_kernel(name: str, expect: str, twin: str = "honest") -> Kernel:
    return Kernel(name, "cpp", "", "", "p", "Verdict", "m", "" if expect == "accepted" else twin, expect, (), "fp32")


KERNELS = [
    a_kernel("honest", "accepted"),
    a_kernel("variant", "accepted-harmless"),
    a_kernel("trick", "rejected"),
    a_kernel("new", "any", twin="other"),
    a_kernel("other", "accepted"),
]


def part(tmp_path, counts: dict[str, dict[str, int]], **more) -> EarlierPart:
    rows = [
        {"kernel": key, "verdicts": verdicts, "false_scores": [], "reason": "earlier", **ROW, **more}
        for key, verdicts in counts.items()
    ]
    path = tmp_path / "earlier.json"
    path.write_text(json.dumps({"rows": rows, "judges": {"a": 3}, "device_names": ["card"]}))
    return EarlierPart(path)


def evaluation(verdict: Verdict = Verdict.CORRECT) -> Evaluation:
    times = {
        "kernel_ms": 2.0,
        "kernel_ms_ci": (1.9, 2.1),
        "reference_ms": 2.0,
        "speedup": 1.0,
        "speedup_ci": (0.9, 1.1),
    }
    return Evaluation(verdict, "now", "p", "cpp", "0", **(times if verdict is Verdict.CORRECT else {}))


def test_a_twin_is_judged_as_often_as_what_is_compared_with_it(tmp_path):
    made = part(tmp_path, {"cpp/honest": {"correct": 20}, "cpp/variant": {"correct": 7}, "cpp/other": {"correct": 20}})
    assert made.counts(KERNELS) == {"cpp/honest": 7, "cpp/variant": 7, "cpp/trick": 0, "cpp/new": 0, "cpp/other": 0}


def test_a_kernel_that_must_be_rejected_has_no_times_to_compare(tmp_path):
    made = part(tmp_path, {"cpp/honest": {"correct": 20}, "cpp/variant": {"correct": 20}})
    assert made.counts(KERNELS[:3]) == {"cpp/honest": 20, "cpp/variant": 20, "cpp/trick": 0}


def test_both_parts_are_counted(tmp_path):
    earlier = part(
        tmp_path, {"cpp/trick": {"correct": 1, "contract": 2}}, false_scores=["passed"], unexpected_verdicts=1
    )
    found = counting.outcome(KERNELS[2], [evaluation(Verdict.CONTRACT), evaluation()], [], requeued=2)
    both = earlier.joined(found)
    assert both.verdicts == {"correct": 2, "contract": 3}
    assert both.false_scores == ("passed", "passed: now") and both.unexpected == 1 and both.requeued == 2


@pytest.mark.parametrize(("repetitions", "reason", "kernel_ms"), [(2, "earlier", 1.0), (4, "now", 2.0)])
def test_times_are_those_of_the_larger_part(tmp_path, repetitions, reason, kernel_ms):
    earlier = part(tmp_path, {"cpp/variant": {"correct": 3}})
    both = earlier.joined(counting.outcome(KERNELS[1], [evaluation()] * repetitions, [evaluation()] * repetitions))
    assert (both.reason, both.kernel_ms) == (reason, kernel_ms)
    assert both.time_ratio == (1.01 if reason == "earlier" else 1.0)


def test_without_an_earlier_part_nothing_changes():
    found = counting.outcome(KERNELS[1], [evaluation()] * 2, [evaluation()] * 2)
    assert EarlierPart().joined(found) == found
    assert set(EarlierPart().counts(KERNELS).values()) == {0}


def test_the_command_judges_what_the_earlier_part_lacks(tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    only = ["--only", "zeros", "--only", "not_a_number"]
    assert CliRunner().invoke(run.main, ["--times", "1", *only, "--out", str(first)]).exit_code == 0
    journal = tmp_path / "journal"
    arguments = ["--times", "2", *only, "--earlier", str(first), "--journal", str(journal), "--out", str(second)]
    answer = CliRunner().invoke(run.main, arguments)
    assert answer.exit_code == 0, answer.output
    judged = [json.loads(line) for line in journal.read_text().splitlines()]
    assert Counter(entry["kernel"] for entry in judged) == {"cpp/softsign": 1, "cpp/zeros": 1, "cpp/not_a_number": 1}
    assert {entry["judge"] for entry in judged} == {1}, "the first judge's repetition stands in the earlier part"
    document = json.loads(second.read_text())
    assert all(sum(row["verdicts"].values()) == 2 for row in document["rows"]) and document["is_complete"]
    assert list(document["judges"].values()) == [6]


def test_a_file_that_is_no_result_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text("{}")
    answer = CliRunner().invoke(run.main, ["--earlier", str(path)])
    assert answer.exit_code == 2 and "'rows'" in answer.output
