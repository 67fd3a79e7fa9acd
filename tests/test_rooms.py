"""The rooms import only leftwards, what is heavy only when it is used, and the judge's rooms torch alone."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("problems", "fitness", "islands", "mutators", "kb_evolve", "experiments")
HEAVY = {
    "torch",
    "litellm",
    "openevolve",
    "openai",
    "matplotlib",
    "numpy",
    "rich",
    "ray",
    "pyarrow",
    "jinja2",
}
TORCH_NEEDS = (
    *("torch", "torchgen", "functorch", "typing_extensions", "sympy", "mpmath", "networkx"),
    *(
        "jinja2",
        "markupsafe",
        "filelock",
        "fsspec",
        "setuptools",
        "_distutils_hack",
        "pkg_resources",
        "triton",
    ),
)


def sources(room: str) -> list[Path]:
    """The room's modules; bundled problems, and what an export carries along, are data."""
    return [path for path in sorted((ROOT / room).rglob("*.py")) if not {"bundled", "carried"} & set(path.parts)]


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(top-level package, line, whether it is imported as soon as the module is)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {id(inner) for node in ast.walk(tree) if _is_late(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            names = [node.module or ""]
        for name in names:
            yield name.split(".")[0], node.lineno, id(node) not in late


def _is_late(node: ast.AST) -> bool:
    is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    return is_for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_to_its_left(room: str) -> None:
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {package}"
        for path in sources(room)
        for package, line, _ in imports(path)
        if package in ROOMS and package not in allowed
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ["problems", "fitness"])
def test_the_judges_rooms_import_torch_and_the_standard_library_only(room: str) -> None:
    allowed = {*sys.stdlib_module_names, "torch", "problems", "fitness"}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {package}"
        for path in sources(room)
        for package, line, at_once in imports(path)
        if at_once and package not in allowed
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ["islands", "mutators", "kb_evolve"])
def test_the_controllers_rooms_import_heavy_packages_only_inside_functions(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {package}"
        for path in sources(room)
        for package, line, at_once in imports(path)
        if at_once and package in HEAVY
    ]
    assert wrong == []


def child(code: str, *arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", **environment},
    )


BLOCKED_IMPORTS = f"""
import importlib, sys

ALLOWED = set(sys.stdlib_module_names) | {set(TORCH_NEEDS)!r} | {{"problems", "fitness", "kb_evolve"}}

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in ALLOWED:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Block())
import kb_evolve
for name in sys.argv[1:]:
    importlib.import_module(name)
    print(name)
"""


def test_problems_fitness_and_kb_evolve_import_with_torch_alone() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for room in ("problems", "fitness")
        for path in sources(room)
        if path.name != "__main__.py"
    ]
    answer = child(BLOCKED_IMPORTS, *names)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == names


def test_the_hook_of_the_test_above_blocks_what_is_not_torchs() -> None:
    answer = child(BLOCKED_IMPORTS, "click")
    assert answer.returncode != 0 and "click is blocked" in answer.stderr


def test_importing_kb_evolve_imports_nothing_heavy() -> None:
    answer = child("import sys, kb_evolve; print(*sys.modules)")
    loaded = {name.split(".")[0] for name in answer.stdout.split()}
    assert loaded.isdisjoint(HEAVY | {"click", "dacite", "sqlite_utils"}), loaded


@pytest.mark.parametrize("intruder", ["problems/__init__.py", "fitness.py"])
def test_a_users_own_package_that_hides_ours_is_named(tmp_path: Path, intruder: str) -> None:
    (tmp_path / intruder).parent.mkdir(exist_ok=True)
    (tmp_path / intruder).write_text("")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    answer = child("import kb_evolve as kb; kb.Search", cwd=tmp_path, PYTHONPATH=path)
    assert answer.returncode == 1
    assert str(tmp_path) in answer.stderr and "PYTHONSAFEPATH" in answer.stderr
    answer = child("from kb_evolve.cli import main; main()", "doctor", cwd=tmp_path, PYTHONPATH=path)
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr and str(tmp_path) in answer.stderr


def test_a_folder_without_an_init_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "problems").mkdir()
    answer = child("import kb_evolve as kb; kb.check_rooms()", cwd=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert answer.returncode == 0, answer.stderr


def test_an_unknown_name_of_the_package_lists_the_known_ones() -> None:
    import kb_evolve

    with pytest.raises(AttributeError, match="Search"):
        kb_evolve.Serch  # noqa: B018
