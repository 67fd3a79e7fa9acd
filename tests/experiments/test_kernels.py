"""The candidate kernels of the measurements: enough of them, self-contained, each a program of its own when marked."""

from __future__ import annotations

import ast

import pytest

from experiments.bench.gpu_eight import EIGHT
from experiments.bench.kernelbench_cost import TABLE
from experiments.bench.records import KERNELBENCH_KERNELS, KernelFile, kernel_files

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
