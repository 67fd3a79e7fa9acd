"""The adversarial kernels are what the harness takes them for, and the honest Triton ones compute what they should."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "experiments" / "adversarial"
KERNELS = [path for backend in ("cpp", "cuda", "triton") for path in sorted((SUITE / backend).glob("*.py"))]
IDS = [f"{path.parent.name}/{path.stem}" for path in KERNELS]
PROBLEMS = sorted((SUITE / "problems").glob("*.py"))
EXPECT = {"rejected", "accepted", "accepted-harmless", "any"}
VERDICTS = {
    "compile_error",
    "load_error",
    "runtime_error",
    "timeout",
    "out_of_memory",
    "wrong_result",
    "contract",
    "no_verdict",
}
PRECISIONS = {"fp32", "tf32", "fp16", "bf16"}
GROUPS = {
    "Honest",
    "Harmless variant",
    "Replay and deferral",
    "Measuring tools",
    "Verdict",
    "Numerics and tasks",
    "Policy labels",
    "Host",
}
MAY_SHARE = 3
"""How many hostile files of one backend may name the same mechanism."""


def fields(path: Path) -> dict[str, str]:
    """The `Name: value` lines of a file's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return dict(re.findall(r"^([A-Z]\w+): (.+)$", text, re.MULTILINE))


def classes(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("path", KERNELS, ids=IDS)
def test_a_kernel_file_says_its_problem_mechanism_twin_and_what_is_expected(path):
    found = fields(path)
    assert "ModelNew" in classes(path)
    assert (SUITE / "problems" / f"{found['Problem']}.py").is_file()
    assert found["Mechanism"].split(" / ")[0] in GROUPS
    assert found["Expect"] in EXPECT
    assert set(found.get("Verdict", "wrong_result").split(", ")) <= VERDICTS
    assert found.get("Precision", "fp32") in PRECISIONS
    assert found.get("Device", "cuda") == "cuda"


@pytest.mark.parametrize("path", KERNELS, ids=IDS)
def test_a_twin_is_honest_and_does_the_same_work_in_the_same_precision(path):
    found = fields(path)
    is_honest = found["Expect"] == "accepted"
    assert (found["Twin"] == "none") == is_honest
    if is_honest:
        return
    twin = fields(path.with_name(f"{found['Twin']}.py"))
    assert twin["Expect"] == "accepted"
    assert twin["Problem"] == found["Problem"]
    assert twin.get("Precision", "fp32") == found.get("Precision", "fp32")


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_a_problem_file_is_in_kernelbenchs_form(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert "Model" in classes(path) and {"get_inputs", "get_init_inputs"} <= functions
    if path.stem.startswith("gpu_"):
        assert shrunk(path) != path.read_text(encoding="utf-8")


@pytest.mark.parametrize("backend", ["cpp", "cuda", "triton"])
def test_a_backend_has_honest_and_harmless_files_and_varied_mechanisms(backend):
    found = [fields(path) for path in KERNELS if path.parent.name == backend]
    expected = Counter(entry["Expect"] for entry in found)
    assert expected["accepted"] >= 4 and expected["accepted-harmless"] >= 2
    hostile = [entry["Mechanism"] for entry in found if not entry["Expect"].startswith("accepted")]
    assert len(hostile) >= {"cpp": 20, "cuda": 28, "triton": 20}[backend]
    assert max(Counter(hostile).values()) <= MAY_SHARE


@pytest.mark.parametrize("backend", ["cpp", "cuda", "triton"])
def test_no_two_files_of_a_backend_are_the_same_program_in_the_same_precision(backend):
    texts = [
        (fields(path).get("Precision"), re.sub(r'^""".*?"""', "", path.read_text(encoding="utf-8"), flags=re.DOTALL))
        for path in KERNELS
        if path.parent.name == backend
    ]
    assert len(set(texts)) == len(texts)


def shrunk(path: Path) -> str:
    """A problem's text with the sizes of its docstring's `Small:` line in place of its own."""
    small = fields(path)["Small"]
    names = re.escape(small.split(" = ")[0])
    return re.sub(rf"^{names} = .*$", small, path.read_text(encoding="utf-8"), flags=re.MULTILINE)


INTERPRET = """
import json, sys, types
import torch
from fitness.backends import interpreter
from problems import inputs
interpreter.enable()
torch.set_grad_enabled(False)
torch.manual_seed(0)

def module(name, path, text):
    made = types.ModuleType(name)
    made.__file__ = path
    sys.modules[name] = made
    exec(compile(text, path, "exec"), made.__dict__)
    return made

def close(got, exact, tolerance):
    wanted = exact.to(got.dtype)
    finite = wanted[torch.isfinite(wanted)].double()
    room = tolerance * float(finite.square().mean().sqrt())
    return got.shape == wanted.shape and torch.allclose(got.double(), wanted.double(), tolerance, room, equal_nan=True)

for job in json.load(sys.stdin):
    problem = module("problem", job["name"], job["problem"])
    reference, kernel = problem.Model(*problem.get_init_inputs()), None
    for weight in reference.parameters():
        weight.add_(0.2 * torch.randn_like(weight))
    kernel = module("candidate", job["path"], open(job["path"]).read()).ModelNew(*problem.get_init_inputs())
    kernel.load_state_dict(reference.state_dict())
    exact, wrong = reference.double(), []
    for family in inputs.FAMILIES:
        drawn = inputs.draw(problem.get_inputs(), family, 7)
        if not close(kernel(*drawn), exact(*[tensor.double() for tensor in drawn]), job["tolerance"]):
            wrong.append(family)
    print(json.dumps([job["name"], wrong]))
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_honest_triton_kernels_are_right_on_every_draw_family_in_the_interpreter():
    jobs = []
    for path in KERNELS:
        found = fields(path)
        if path.parent.name != "triton" or not found["Expect"].startswith("accepted"):
            continue
        tolerance = {"fp32": 2e-5, "tf32": 4e-3, "fp16": 4e-3, "bf16": 3e-2}[found.get("Precision", "fp32")]
        problem = shrunk(SUITE / "problems" / f"{found['Problem']}.py")
        jobs.append({"name": path.stem, "path": str(path), "problem": problem, "tolerance": tolerance})
    done = subprocess.run(
        [sys.executable, "-c", INTERPRET], input=json.dumps(jobs), capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert dict(json.loads(line) for line in done.stdout.splitlines()) == {job["name"]: [] for job in jobs}
