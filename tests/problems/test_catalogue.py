"""Finding problems by name, path and number, and what is said about those that are none."""

import sys

import pytest

from problems import catalogue
from problems.problem import ProblemError

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(8, 4)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def checkout(tmp_path):
    for number, name in ((1, "Square_matmul"), (10, "Tall_matmul"), (19, "ReLU")):
        file = tmp_path / "KernelBench" / "level1" / f"{number}_{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(PROBLEM + f"# {number}\n")
    return tmp_path


def write(folder, name, text):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def refusal(call, *arguments):
    with pytest.raises(ProblemError) as raised:
        call(*arguments)
    return str(raised.value)


def test_a_path_gives_the_exact_text_of_the_file(tmp_path):
    path = write(tmp_path, "relu.py", PROBLEM.replace("\n", "\r\n").encode())
    problem = catalogue.load(path)
    assert (problem.id, problem.name, problem.level) == (path, "relu", 0)
    assert problem.source.encode() == (tmp_path / "relu.py").read_bytes()


def test_loading_does_not_run_the_file(tmp_path):
    path = write(tmp_path, "loud.py", PROBLEM + f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    catalogue.load(path)
    assert not (tmp_path / "ran").exists()
    assert "problem" not in sys.modules


def test_a_number_is_found_in_a_checkout(checkout):
    problem = catalogue.load("level1/19", str(checkout))
    assert (problem.id, problem.name, problem.level) == ("level1/19", "19_ReLU", 1)
    assert problem.source.endswith("# 19\n")


def test_number_1_is_not_number_10_or_19(checkout):
    assert catalogue.load("level1/1", str(checkout)).name == "1_Square_matmul"


def test_a_full_name_and_its_file_name_name_the_same_problem(checkout):
    assert catalogue.load("level1/19_ReLU", str(checkout)) == catalogue.load("level1/19_ReLU.py", str(checkout))


def test_a_checkout_may_hold_its_levels_directly(checkout):
    assert catalogue.load("level1/19", str(checkout / "KernelBench")).name == "19_ReLU"


def test_the_checkout_is_taken_from_the_environment(checkout, monkeypatch):
    monkeypatch.setenv("KERNELBENCH_ROOT", str(checkout))
    assert catalogue.load("level1/19").name == "19_ReLU"


def test_a_number_without_a_checkout_says_how_to_name_one(monkeypatch):
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    said = refusal(catalogue.load, "level1/19")
    assert "--kernelbench" in said and "KERNELBENCH_ROOT" in said


def test_a_number_that_is_not_there_says_which_are(checkout):
    assert "numbers 1 to 19" in refusal(catalogue.load, "level1/20", str(checkout))


def test_a_level_that_is_not_there_says_where_it_was_expected(checkout):
    assert "KernelBench/level7/" in refusal(catalogue.load, "level7/1", str(checkout))


def test_a_wrong_full_name_says_the_right_one(checkout):
    assert "19_ReLU" in refusal(catalogue.load, "level1/19_GELU", str(checkout))


def test_a_root_that_is_not_there_is_named(tmp_path):
    assert str(tmp_path / "gone") in refusal(catalogue.load, "level1/19", str(tmp_path / "gone"))


def test_two_files_with_one_number_must_be_told_apart(checkout):
    write(checkout / "KernelBench" / "level1", "19_GELU.py", PROBLEM)
    said = refusal(catalogue.load, "level1/19", str(checkout))
    assert "19_GELU" in said and "19_ReLU" in said
    assert catalogue.load("level1/19_GELU", str(checkout)).name == "19_GELU"


def test_a_folder_gives_its_problems_in_numeric_order(checkout):
    problems = catalogue.load_folder(checkout / "KernelBench" / "level1")
    assert [problem.name for problem in problems] == ["1_Square_matmul", "10_Tall_matmul", "19_ReLU"]
    assert {problem.level for problem in problems} == {1}


def test_a_problem_of_a_folder_is_loaded_again_by_its_id(checkout):
    first = catalogue.load_folder(checkout / "KernelBench" / "level1")[0]
    assert catalogue.load(first.id) == first


def test_a_folder_without_problems_names_the_subfolders_that_have_some(checkout):
    assert "level1" in refusal(catalogue.load_folder, checkout / "KernelBench")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    assert str(tmp_path / "gone") in refusal(catalogue.load_folder, tmp_path / "gone")


def test_a_misspelt_bundled_name_suggests_the_nearest():
    assert "rmsnorm" in refusal(catalogue.load, "rmsnrom")


def test_a_missing_file_suggests_the_nearest_in_its_folder(tmp_path):
    write(tmp_path, "softmax.py", PROBLEM)
    said = refusal(catalogue.load, str(tmp_path / "sofmax.py"))
    assert "no file" in said and "softmax.py" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("  \n\n", "empty"),
        (b"x = '\xff'\n", "not UTF-8 text: byte 5 is 0xff"),
        ("def get_inputs(:\n", "not Python: invalid syntax in line 1"),
        ("x = '\0'\n", "null bytes"),
        ("(" * 5000, "not Python"),
        (PROBLEM.replace("class Model(", "class Modell("), "it lacks Model"),
        (PROBLEM.replace("get_inputs", "get_input"), "it lacks get_inputs"),
        (PROBLEM.replace("get_init_inputs", "init"), "it lacks get_init_inputs"),
        ("# " + "x" * (1 << 20), "larger than"),
    ],
    ids=range(10),
)
def test_a_file_that_is_no_problem_is_refused_with_its_path(tmp_path, text, said):
    path = write(tmp_path, "bad.py", text)
    message = refusal(catalogue.load, path)
    assert said in message and path in message


def test_definitions_inside_methods_do_not_count(tmp_path):
    hidden = "def f():\n" + "".join(f"    {line}\n" for line in PROBLEM.splitlines())
    assert "it lacks Model, get_inputs, get_init_inputs" in refusal(catalogue.load, write(tmp_path, "f.py", hidden))


def test_definitions_by_assignment_import_and_under_if_count(tmp_path):
    text = "from kernels import Model\nget_inputs = list\nif True:\n    def get_init_inputs(): return []\n"
    assert catalogue.load(write(tmp_path, "odd.py", text)).source == text


def test_a_folder_given_as_a_file_is_refused(tmp_path):
    assert "is a folder" in refusal(catalogue.load, str(tmp_path) + "/")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("dataset")
    for level, number, name in ((1, 19, "19_ReLU"), (2, 9, "9_Fused")):
        row = {"code": [PROBLEM + f"# {name}\n"], "level": [level], "name": [name], "problem_id": [number]}
        path = folder / "data" / f"level_{level}-00000-of-00001.parquet"
        path.parent.mkdir(exist_ok=True)
        parquet.write_table(pyarrow.table(row), path)
    return folder


def test_a_number_is_found_in_a_folder_of_parquet_files(dataset):
    problem = catalogue.load("level2/9", str(dataset))
    assert (problem.id, problem.name, problem.level) == ("level2/9", "9_Fused", 2)
    assert problem.source.endswith("# 9_Fused\n")


def test_a_number_is_found_in_one_parquet_file(dataset):
    file = str(dataset / "data" / "level_1-00000-of-00001.parquet")
    assert catalogue.load("level1/19_ReLU", file).name == "19_ReLU"
    assert "no problems of level 2" in refusal(catalogue.load, "level2/9", file)


def test_a_parquet_file_of_something_else_says_its_columns(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "other.parquet")
    said = refusal(catalogue.load, "level1/19", str(tmp_path / "other.parquet"))
    assert "problem_id" in said and "found text" in said


def test_a_broken_parquet_file_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    path = write(tmp_path, "broken.parquet", "PAR1 no")
    assert "not a readable parquet file" in refusal(catalogue.load, "level1/19", path)


def test_without_pyarrow_a_parquet_file_says_what_to_install(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install pyarrow" in refusal(catalogue.load, "level1/19", str(dataset))


def test_a_bad_row_is_refused_like_a_bad_file(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    row = {"code": ["x = 1\n"], "level": [1], "name": ["3_Bad"], "problem_id": [3]}
    parquet.write_table(pyarrow.table(row), tmp_path / "bad.parquet")
    said = refusal(catalogue.load, "level1/3", str(tmp_path / "bad.parquet"))
    assert "3_Bad" in said and "it lacks Model" in said
