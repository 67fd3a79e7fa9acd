"""The bundled suite: every problem on disk has its lines, its form, and a seed that computes the same.

Run as a program with the name of a level, this file is the child process that loads that level's problems and seeds
and prints what it found as one JSON document: neither is ever loaded in pytest's own process.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "problems" / "bundled"
LEVELS = ("level1", "level2", "level3")
PROBLEMS = sorted(path for level in LEVELS for path in (SUITE / level).glob("[!_]*.py"))
SEEDS = sorted((SUITE / "seeds").glob("[!_]*.py"))
TOLERANCE = 1e-5
"""Of the largest absolute value of the exact output. A float sum of some hundred terms in any order errs by less
than 1e-6 of it; a wrong index or a dropped term by more than 1e-3."""
TUNABLE = re.compile(r"^constexpr \w+ (?P<name>\w+) = (?P<value>\w+);  // tune: (?P<choices>[\w ]+)$", re.MULTILINE)

every_problem = pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: f"{path.parent.name}-{path.stem}")
every_seed = pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)


def flags_line(seed: str) -> list[str]:
    return re.findall(r"^CFLAGS = \[.*\]$", seed, re.MULTILINE)


def cpp_strings(seed: str) -> list[str]:
    return re.findall(r'^SOURCE = r"""\n(.*?)^"""$', seed, re.MULTILINE | re.DOTALL)


def top_level_names(source: str) -> set[str]:
    kinds = (ast.ClassDef, ast.FunctionDef)
    return {node.name for node in ast.parse(source).body if isinstance(node, kinds)}


@functools.cache
def comparisons(level: str) -> dict[str, Any]:
    """What the child process found for each problem of the level, by name."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    child = subprocess.run(
        [sys.executable, str(Path(__file__)), level],
        capture_output=True, text=True, timeout=300, env=environment, check=False,
    )  # fmt: skip
    assert child.returncode == 0, f"the child for {level} ended with {child.returncode}:\n{child.stderr[-4000:]}"
    return json.loads(child.stdout)


def test_at_least_24_problems_stand_in_three_levels() -> None:
    per_level = Counter(path.parent.name for path in PROBLEMS)
    assert set(per_level) == set(LEVELS)
    assert per_level.total() >= 24
    assert per_level["level1"] >= 17


def test_a_name_is_used_once_in_all_levels() -> None:
    assert [name for name, uses in Counter(path.stem for path in PROBLEMS).items() if uses > 1] == []


def test_every_seed_belongs_to_a_problem() -> None:
    assert {path.stem for path in SEEDS} - {path.stem for path in PROBLEMS} == set()


def test_half_of_the_seeds_declare_something_to_tune() -> None:
    tunable = [path.stem for path in SEEDS if TUNABLE.search(path.read_text())]
    assert 2 * len(tunable) >= len(SEEDS)


@every_problem
def test_a_problem_says_what_it_computes_and_what_to_exploit(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    first, *others = docstring.splitlines()
    assert first.endswith((".", ";")) or others[0].strip(), f"{path.name}: the first line is not a statement: {first!r}"
    exploits = [line for line in others if line.startswith("Exploit: ")]
    assert len(exploits) == 1, f"{path.name}: {len(exploits)} lines begin with 'Exploit: ', must be 1"
    assert len(exploits[0]) > len("Exploit: ") + 20


@every_problem
def test_a_problem_has_kernelbenchs_form_and_a_snake_case_name(path: Path) -> None:
    assert {"Model", "get_inputs", "get_init_inputs"} <= top_level_names(path.read_text())
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", path.stem)


@every_problem
def test_a_problem_has_a_seed_that_gives_what_fp64_gives(path: Path) -> None:
    found = comparisons(path.parent.name)[path.stem]
    assert "error" not in found, found["error"]
    for family, outputs in found.items():
        for number, output in enumerate(outputs):
            where = f"{path.stem}, {family} inputs, output {number}"
            assert output["seed_form"] == output["reference_form"], where
            assert output["error"] <= TOLERANCE, f"{where}: off by {output['error']:.2g} of the largest value"


@every_seed
def test_a_seed_has_the_lean_form(path: Path) -> None:
    seed = path.read_text()
    assert seed.isascii()
    assert "ModelNew" in top_level_names(seed)
    assert len(re.findall("CFLAGS =", seed)) == len(flags_line(seed)) == 1
    assert all(isinstance(flag, str) for flag in ast.literal_eval(flags_line(seed)[0].removeprefix("CFLAGS = ")))
    assert len(re.findall("SOURCE =", seed)) == len(cpp_strings(seed)) == 1
    assert 'extern "C"' in cpp_strings(seed)[0]


@every_seed
def test_a_tunable_has_one_of_its_values_and_is_used(path: Path) -> None:
    source = cpp_strings(path.read_text())[0]
    assert source.count("// tune:") == len(TUNABLE.findall(source)), "a tune comment that is not on a constexpr line"
    for name, value, choices in TUNABLE.findall(source):
        assert value in choices.split()
        assert len(set(choices.split())) == len(choices.split()) > 1
        assert len(re.findall(rf"\b{name}\b", source)) > 1, f"{name} changes nothing"


def test_a_seed_loads_through_torchs_own_load_inline(tmp_path: Path) -> None:
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # ninja's place
    environment = {**os.environ, "PATH": search, "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    seed = SUITE / "seeds" / "rmsnorm.py"
    program = f"import runpy; print(runpy.run_path({str(seed)!r})['library'].rmsnorm.__name__)"
    child = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
    )
    assert child.stdout.split() == ["rmsnorm"], child.stderr[-4000:]


# ---- the child process ------------------------------------------------------------------------------------------


def build(name: str, source: str, *, extra_cflags: list[str], **options: Any) -> str:
    """Stands in for load_inline: the lean form needs nothing of it but a shared library's path."""
    expected = {
        "functions": None,
        "no_implicit_headers": True,
        "is_python_module": False,
        "extra_ldflags": extra_cflags,
    }
    assert options == expected, f"{name} calls load_inline with {options}, not with {expected}"
    digest = hashlib.sha256(f"{extra_cflags}{source}".encode()).hexdigest()[:16]
    library = Path(tempfile.gettempdir()) / f"{name}-{digest}.so"
    text = library.with_suffix(".cpp")
    text.write_text(source)
    command = ["g++", "-shared", "-fPIC", *extra_cflags, str(text), "-o", str(library)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr[-2000:]
    return str(library)


def run_file(path: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def tensors(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def form(tensor: Any) -> list[str]:
    return [str(tuple(tensor.shape)), str(tensor.dtype), str(tensor.stride())]


def relative_error(actual: Any, exact: Any) -> float:
    """Largest error over the exact output's largest absolute value; NaN, which no bound accepts, if either has one."""
    if actual.shape != exact.shape:
        return float("inf")
    return float((actual.double() - exact).abs_().max() / exact.abs().max().clamp(min=1e-30))


def compare(path: Path) -> dict[str, Any]:
    import torch

    from problems.inputs import draw

    problem, candidate = run_file(path), run_file(SUITE / "seeds" / path.name)
    models = []
    for maker in (problem["Model"], problem["Model"], candidate["ModelNew"]):
        torch.manual_seed(1)
        models.append(maker(*problem["get_init_inputs"]()))
    reference, exact_model, seed = models
    exact_model.double()
    seed.load_state_dict(reference.state_dict())
    torch.manual_seed(2)
    own = problem["get_inputs"]()
    found = {}
    for family in ("own", "normal"):
        inputs = draw(own, family, 3)
        doubled = [i.double() if torch.is_tensor(i) and i.is_floating_point() else i for i in inputs]
        triples = zip(
            *(tensors(m(*i)) for m, i in ((reference, inputs), (exact_model, doubled), (seed, inputs))),
            strict=True,
        )
        found[family] = [
            {"reference_form": form(r), "seed_form": form(s), "error": relative_error(s, e)} for r, e, s in triples
        ]
    return found


def main(level: str) -> None:
    import torch
    import torch.utils.cpp_extension

    torch.utils.cpp_extension.load_inline = build  # type: ignore[assignment]  # only what the lean form asks of it
    found: dict[str, Any] = {}
    with torch.no_grad(), tempfile.TemporaryDirectory() as tempfile.tempdir:
        for path in (path for path in PROBLEMS if path.parent.name == level):
            try:
                found[path.stem] = compare(path)
            except Exception as error:  # a problem that breaks must not hide the others
                found[path.stem] = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
