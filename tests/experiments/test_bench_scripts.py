"""The measuring scripts, rehearsed on the CPU: rows survive a kill, both sides meet in a table, wrong verdicts show."""

from __future__ import annotations

import json
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments.bench import gpu_eight, gpu_timing, kernelbench_child, kernelbench_cost, records
from experiments.bench.gpu_timing import Estimate, beats
from fitness.evaluation import JudgeError, Verdict

PROBLEM = textwrap.dedent("""
    import torch
    import torch.nn as nn

    class Model(nn.Module):
        def forward(self, x):
            return torch.relu(x)

    def get_inputs():
        return [torch.rand(64, 1024)]

    def get_init_inputs():
        return []
""")

EVALUATOR = textwrap.dedent("""
    import os, time, types

    def get_torch_dtype_from_string(name):
        return name

    def eval_kernel_against_ref(original_model_src, custom_model_src, num_correct_trials, num_perf_trials,
                                measure_performance, build_dir, device, backend, precision):
        assert os.listdir(build_dir) == [] and os.environ["CUDA_VISIBLE_DEVICES"] == "0"
        names = {}
        exec(original_model_src, names)
        exec(custom_model_src, names)
        if "wait for ever" in custom_model_src:
            time.sleep(60)
        inputs = names["get_inputs"]()
        is_right = bool((names["Model"]()(*inputs) == names["ModelNew"]()(*inputs)).all())
        times = {"runtime": 0.5, "ref_runtime": 1.0, "metadata": {"trials": num_correct_trials}}
        return types.SimpleNamespace(compiled=True, correctness=is_right, **times)
""")
"""An evaluator with the interface of KernelBench's, for machines without a GPU: it too believes what it is shown."""


def kernel(body: str, kind: str) -> str:
    return textwrap.dedent(f'''
        """A candidate.

        Problem: level1/1
        Backend: cpp
        Kind: {kind}
        """

        import torch
        import torch.nn as nn


        class ModelNew(nn.Module):
            def forward(self, x):
                # candidate
                return {body}
    ''').lstrip()


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A folder with the outer form of a KernelBench checkout."""
    root = tmp_path / "checkout"
    package = root / "src" / "kernelbench"
    package.mkdir(parents=True)
    (root / "KernelBench" / "level1").mkdir(parents=True)
    (root / "KernelBench" / "level1" / "1_Tiny.py").write_text(PROBLEM)
    (package / "__init__.py").write_text("from . import utils\n")
    (package / "utils.py").write_text("def set_gpu_arch(names):\n    assert names == ['Hopper']\n")
    (package / "eval.py").write_text(EVALUATOR)
    return root


def folder_of(path: Path, **sources: str) -> Path:
    path.mkdir()
    for name, source in sources.items():
        (path / f"{name}.py").write_text(source)
    return path


def run(command, *arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)


def test_the_cost_table_holds_both_sides_and_a_second_run_measures_nothing_again(tmp_path, checkout):
    kernels = folder_of(
        tmp_path / "kernels", honest=kernel("x.clamp(min=0)", "honest"), cheat=kernel("x.clone()", "cheat")
    )
    out = tmp_path / "cost.json"
    arguments = ["--kernelbench", checkout, "--kernels", kernels, "--only", "honest", "--only", "cheat"]
    arguments += ["--device", "cpu", "--variants", 2, "--out", out]
    first = run(kernelbench_cost.main, *arguments)
    assert first.exit_code == 0, first.output
    document = json.loads(out.read_text())
    table = {row["name"]: row for row in document["summary"]["table"]}
    assert table["honest"]["their_verdict"] == table["cheat"]["their_verdict"] == "correct"
    assert table["honest"]["our_verdicts"] == ["correct"] and table["cheat"]["our_verdicts"] == ["wrong_result"]
    assert set(document["ours"]) == {"honest#0", "honest#1", "cheat#0", "cheat#1"}
    assert 0 < table["cheat"]["their_device_s"] < table["cheat"]["their_wall_s"]
    stream_s = sum(row["wall_s"] for row in document["ours"].values())
    assert document["summary"]["our_stream_s"] == pytest.approx(stream_s)
    again = run(kernelbench_cost.main, *arguments)
    assert again.exit_code == 0 and json.loads(out.read_text())["ours"] == document["ours"]


def test_an_evaluation_that_outlasts_the_limit_leaves_no_row_and_is_named_as_missing(tmp_path, checkout):
    kernels = folder_of(tmp_path / "kernels", slow=kernel("x  # wait for ever", "honest"))
    out = tmp_path / "cost.json"
    arguments = ["--kernelbench", checkout, "--kernels", kernels, "--only", "slow", "--no-ours", "--out", out]
    result = run(kernelbench_cost.main, *arguments, "--limit-s", 2)
    assert result.exit_code == 1 and "theirs slow" in result.output
    assert "theirs" not in json.loads(out.read_text())


def test_packages_that_kernelbench_imports_in_vain_are_replaced_only_where_they_are_missing(monkeypatch):
    real = kernelbench_child.importlib.util.find_spec
    monkeypatch.setattr(
        kernelbench_child.importlib.util, "find_spec", lambda name: None if name == "dotenv" else real("json")
    )
    monkeypatch.setattr(kernelbench_child.sys, "modules", dict(kernelbench_child.sys.modules))
    assert kernelbench_child.provide_missing_packages() == ["dotenv"]
    assert kernelbench_child.sys.modules["dotenv"].load_dotenv() is None


def test_a_record_takes_values_by_name_and_never_shares_a_default():
    class Found(kernelbench_child.Record):
        correct: bool = False
        metadata: dict = {}

    one, two = Found(correct=True), Found()
    one.metadata["seen"] = 1
    assert one.correct and not two.correct and two.metadata == {}


def test_the_eight_fail_when_a_single_verdict_is_wrong_and_right_ones_are_not_judged_again(tmp_path, checkout):
    honest, cheat = kernel("x.clamp(min=0)", "honest"), kernel("x.clone()", "cheat")
    mislabelled = honest.replace("Kind: honest", "Kind: cheat")
    kernels = folder_of(tmp_path / "kernels", honest=honest, cheat=cheat, other=mislabelled)
    out = tmp_path / "eight.json"
    arguments = ["--kernelbench", checkout, "--device", "cpu", "--out", out, "--kernels", kernels]
    result = run(gpu_eight.main, *arguments)
    assert result.exit_code == 1 and '"wrong": ["other"]' in result.output
    (kernels / "other.py").unlink()
    before = json.loads(out.read_text())["verdicts"]
    assert run(gpu_eight.main, *arguments).exit_code == 0
    assert json.loads(out.read_text())["verdicts"] == before


@pytest.mark.parametrize("verdict", [Verdict.RUNTIME_ERROR, Verdict.NO_VERDICT, Verdict.CORRECT])
def test_a_cheat_that_merely_crashes_or_gets_no_verdict_is_not_caught(verdict):
    assert not gpu_eight.is_right("cheat", verdict)


def test_judgements_are_stored_one_by_one_and_a_second_run_judges_only_what_is_missing(tmp_path):
    out = tmp_path / "timing.json"
    arguments = ["--device", "cpu", "--kernel", "row_variance", "--part", "proposals", "--proposals", 1, "--out", out]
    for _ in range(3):  # on a busy machine the first judgement may find no quiet moment; then nothing is stored
        try:
            assert run(gpu_timing.main, *arguments).exit_code == 0
            break
        except JudgeError:
            assert "proposals" not in json.loads(out.read_text())
    first = json.loads(out.read_text())
    assert first["summary"]["proposals"]["judged"] == 1 and set(first["proposals"]) == {"0", "1"}
    assert run(gpu_timing.main, *arguments).exit_code == 0
    assert json.loads(out.read_text())["proposals"] == first["proposals"]


def test_the_time_limit_ends_a_run_before_the_next_judgement(tmp_path):
    result = run(gpu_timing.main, "--device", "cpu", "--out", tmp_path / "timing.json", "--limit-s", 0)
    assert result.exit_code == 1 and "same command again" in result.output


INCUMBENT = Estimate(2.0, 1.99, 2.01)


@pytest.mark.parametrize(
    ("duel", "wins"),
    [
        (Estimate(2.0, 1.99, 2.01), False),
        (Estimate(2.01, 2.009, 2.011), False),  # half a per cent: not above the least gain
        (Estimate(2.03, 2.02, 2.04), True),
        (Estimate(2.03, 1.95, 2.12), False),  # the same gain, uncertain
        (Estimate(3.0, 2.7, 3.3), True),
    ],
)
def test_only_a_gain_that_is_certain_and_above_half_a_per_cent_makes_an_elite(duel, wins):
    assert beats(duel, INCUMBENT) is wins


def test_the_incumbents_own_uncertainty_counts_too():
    duel = Estimate(2.03, 2.02, 2.04)
    assert beats(duel, INCUMBENT) and not beats(duel, Estimate(2.0, 1.9, 2.1))


def test_percentiles_lie_between_the_nearest_values():
    values = [float(value) for value in range(21)]
    assert (gpu_timing.percentile(values, 5), gpu_timing.percentile(values, 95)) == (1.0, 19.0)
    assert gpu_timing.percentile([1.0, 2.0], 50) == 1.5


def test_agreement_is_judged_by_the_worst_kernel_on_either_clock():
    rows = {
        "a": {"name": "a", **over(1.01, 0.99, 1.02, 1.03)},
        "b": {"name": "b", **over(1.0, 1.04, 1.0, 1.06)},
        "launch_bound": {"name": "launch_bound", **over(1.5, 1.5, 1.5, 1.5)},
    }
    found = gpu_timing.summarise({"clocks": rows})["clocks"]
    assert found["worst_deviation"] == pytest.approx(0.04) and not found["met"]
    assert found["worst_deviation_from_row"] == pytest.approx(0.02)
    assert found["worst_deviation_from_kernels"] == pytest.approx(0.06)


def over(*ratios):
    """The judge's time over that of each other clock."""
    names = ("judge_over_do_bench", "judge_over_graph", "judge_over_row", "judge_over_kernels")
    return dict(zip(names, ratios, strict=True))


def test_the_timing_kernels_get_the_sizes_that_the_table_names():
    source = gpu_timing.load("softmax", "cuda:0").problem_source
    assert "ROWS = 4096\n" in source and "COLUMNS = 8192\n" in source
    assert len(gpu_timing.SIZES) == 12 and gpu_timing.load("elementwise_12m", "cuda:0").backend == "cuda"


def test_rows_written_at_the_same_time_are_all_kept(tmp_path):
    out = tmp_path / "rows.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: records.add_row(out, "rows", str(number), {"number": number}), range(64)))
    assert {row["number"] for row in records.rows(out, "rows")} == set(range(64))


def test_a_kernel_file_without_its_lines_is_refused_by_name(tmp_path):
    (tmp_path / "bare.py").write_text('"""Nothing said."""\n')
    with pytest.raises(records.click.ClickException, match=r"bare\.py.*Backend, Kind, Problem"):
        records.kernel_files(tmp_path)
