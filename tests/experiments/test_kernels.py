"""The candidate kernels of the measurements: enough of them, self-contained, each a program of its own when marked."""

from __future__ import annotations

import ast

import pytest

from experiments.bench.gpu_eight import EIGHT
from experiments.bench.kernelbench_cost import TABLE
from experiments.bench.records import KERNELBENCH_KERNELS, KernelFile, kernel_files
from fitness.backends.cuda import find_toolkit
from fitness.evaluation import Job, Verdict
from fitness.workbench import Workbench
from mutators.tunables import find_tunables, set_values

FILES = kernel_files(KERNELBENCH_KERNELS)
HONEST = [file for file in FILES if file.kind == "honest"]
ALLOWED = {"ctypes", "torch", "triton"}


def named(file: KernelFile) -> str:
    return file.name


def test_enough_honest_kernels_over_enough_problems_of_both_levels_and_backends():
    assert len(HONEST) >= 14
    assert len({file.problem for file in HONEST}) >= 10
    assert {file.problem.split("/")[0] for file in HONEST} == {"level1", "level2"}
    assert {file.backend for file in HONEST} == {"cuda", "triton"}


def test_the_table_and_the_eight_name_files_that_exist():
    names = {file.name for file in FILES}
    assert set(TABLE) <= names and set(EIGHT) <= names
    assert len({file.problem for file in FILES if file.name in TABLE}) >= 10


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_kernel_file_is_named_after_its_problem_and_imports_only_what_a_candidate_may(file):
    assert file.name.startswith(file.problem.replace("/", "_") + "_")
    tree = ast.parse(file.source)
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert imported <= ALLOWED
    assert "ModelNew" in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert ("triton" in imported) == (file.backend == "triton")


@pytest.mark.parametrize("file", HONEST, ids=named)
def test_two_variants_differ_inside_the_kernel_itself_and_nowhere_else_in_what_is_computed(file):
    one, two = file.variant("1"), file.variant("2")
    assert one.count("candidate 1") == two.count("candidate 2") == 2
    assert ast.dump(ast.parse(one.replace("candidate 1", "candidate 2"))) == ast.dump(ast.parse(two))
    if file.backend == "cuda":
        assert any("candidate 1" in text for text in strings(one)), "the mark must lie in the text that is compiled"
    else:
        assert any("candidate 1" in ast.get_source_segment(one, kernel) for kernel in kernels(one))


def strings(source: str) -> list[str]:
    return [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def kernels(source: str) -> list[ast.FunctionDef]:
    """The functions that Triton compiles."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return [node for node in functions if any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)]


MINIATURES = {
    "level1/12": ("A.unsqueeze(1) * B", "A, B", "torch.rand(5), torch.rand(5, 3000)", "", "", ""),
    "level1/23": ("torch.softmax(x, dim=1)", "x", "torch.rand(2, 5000)", "", "", ""),
    "level1/36": (
        "x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5)",
        *("x", "torch.rand(2, 6, 9, 7)", "channels", "", "6"),
    ),
    "level1/44": (
        "self.pool(x)",
        "x",
        "torch.rand(2, 3, 1500)",
        "k, s, p",
        "self.pool = nn.AvgPool1d(k, s, p)",
        "8, 1, 4",
    ),
    "level1/47": (
        "torch.sum(x, dim=self.dim, keepdim=True)",
        "x",
        "torch.rand(2, 40, 130)",
        "dim",
        "self.dim = dim",
        "1",
    ),
    "level1/100": (
        "torch.mean(torch.clamp(1 - p * t, min=0))",
        *("p, t", "torch.rand(9, 5000), torch.randint(0, 2, (5000,)).float() * 2 - 1", "", "", ""),
    ),
    "level2/9": (
        "torch.relu((self.linear(x) - self.s) * self.m)",
        *(
            "x",
            "torch.rand(8, 96)",
            "i, o, s, m",
            "self.linear = nn.Linear(i, o); self.s, self.m = s, m",
            "96, 300, 0.1, 1.5",
        ),
    ),
    "level2/63": (
        "torch.relu(self.linear(x)) / self.d",
        *("x", "torch.rand(8, 96)", "i, o, d", "self.linear = nn.Linear(i, o); self.d = d", "96, 300, 2.0"),
    ),
    "level2/99": (
        "torch.softmax(torch.nn.functional.gelu(self.linear(x)), dim=1)",
        *("x", "torch.rand(8, 96)", "i, o", "self.linear = nn.Linear(i, o)", "96, 300"),
    ),
}
"""Small problems of the same kinds: (result, arguments, inputs, parameters, set-up, their values)."""


def miniature(problem: str) -> str:
    result, arguments, inputs, parameters, setup, values = MINIATURES[problem]
    return f"""
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        {setup}

    def forward(self, {arguments}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{values}]
"""


@pytest.fixture(scope="module")
def verdict():
    """verdict(file) -> what the judge says of a Triton candidate on its miniature, run by Triton's interpreter."""
    pytest.importorskip("triton")
    with Workbench(device="cpu") as bench:
        yield lambda file: bench.evaluate(Job(file.problem, miniature(file.problem), file.source, "triton"))


def test_the_constant_softmax_is_refused_where_its_honest_twin_is_verified(verdict):
    files = {file.kind: file for file in FILES if file.problem == "level1/23"}
    assert verdict(files["honest"]).verdict is Verdict.VERIFIED
    assert verdict(files["cheat"]).verdict is Verdict.WRONG_RESULT


@pytest.mark.slow
@pytest.mark.parametrize("file", [file for file in HONEST if file.backend == "triton"], ids=named)
def test_an_honest_triton_kernel_is_right_on_every_family_of_draws(file, verdict):
    found = verdict(file)
    assert found.verdict is Verdict.VERIFIED, found.reason


SEARCH = KERNELBENCH_KERNELS.parent / "search"
CHOICES = {"cuda": ("THREADS", "WIDTH", "KEEP", "STREAMING"), "triton": ("BLOCK", "WARPS", "STAGES")}


def search_job(backend: str, place: int) -> Job:
    """The example's problem in a small size and its first kernel with the first or the last choices."""
    problem = (SEARCH / "bias_gelu_rmsnorm_problem.py").read_text()
    for name, (is_now, small) in {"ROWS": (16384, 6), "COLUMNS": (2048, 520)}.items():
        assert f"{name} = {is_now}\n" in problem
        problem = problem.replace(f"{name} = {is_now}\n", f"{name} = {small}\n")
    source = (SEARCH / f"bias_gelu_rmsnorm_{backend}.py").read_text()
    tunables = find_tunables(source)
    assert tuple(one.name for one in tunables) == CHOICES[backend]
    source = set_values(source, {one.name: one.choices[place] for one in tunables})
    return Job("bias_gelu_rmsnorm", problem, source, backend, arch="sm_90" if backend == "cuda" else "")


@pytest.mark.parametrize("place", [0, -1])
def test_the_examples_first_triton_kernel_is_right_with_every_choice(place):
    pytest.importorskip("triton")
    with Workbench(device="cpu") as bench:
        found = bench.evaluate(search_job("triton", place))
    assert found.verdict is Verdict.VERIFIED, found.reason


@pytest.mark.skipif(find_toolkit() is None, reason="needs nvcc")
@pytest.mark.parametrize("place", [0, -1])
def test_the_examples_first_cuda_kernel_builds_with_every_choice(place):
    with Workbench(device="cpu") as bench:
        built = bench.build(search_job("cuda", place))
    assert built.failure is None, built.failure
