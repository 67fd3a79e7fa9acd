"""Finding problems: bundled ones by name, files by path, KernelBench's by number. Nothing is executed."""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from problems import kernelbench
from problems.problem import Problem, ProblemError
from problems.syntax import parse

BUNDLED = Path(__file__).resolve().parent / "bundled"
REQUIRED = ("Model", "get_inputs", "get_init_inputs")
"""What KernelBench's file format must define at the top level."""
SIZE_LIMIT = 1 << 20
"""Largest problem file [B]; KernelBench's largest is under 20 kB."""
ROOT_VARIABLE = "KERNELBENCH_ROOT"


def load(ref: str, kernelbench_root: str | None = None) -> Problem:
    """The problem that `ref` names: a bundled name, a path of a .py file, or `level1/19` (or
    `level1/19_ReLU`) of KernelBench.

    KernelBench is looked for in `kernelbench_root`, then in the environment variable KERNELBENCH_ROOT: a
    checkout, a parquet file of its data set, or a folder of such files. The file's syntax is checked, its
    code is not run. Raises ProblemError where there is no such problem or the file is not one.
    """
    number = ref.removesuffix(".py")
    if kernelbench.REFERENCE.fullmatch(number) and not Path(ref).is_file():
        return _load_kernelbench(number, kernelbench_root)
    if ref.endswith(".py") or "/" in ref or os.sep in ref:
        return _load_file(Path(ref).expanduser(), ref)
    names = _bundled_files()
    if ref in names:
        return _load_bundled(names[ref])
    near = difflib.get_close_matches(ref, names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`kb-evolve problems list` shows all names."
    raise ProblemError(
        f"no bundled problem is named {ref!r}: {hint} "
        "Other problems are named by a path ending in .py, or as level1/19 with a KernelBench checkout."
    )


def bundled() -> list[Problem]:
    """Every bundled problem with its statement and seed, by level, then by name."""
    return [_load_bundled(path) for path in _bundled_files().values()]


def load_folder(path: str | Path) -> list[Problem]:
    """The problems in a folder's own .py files, KernelBench's numbers in order.

    Raises ProblemError if there is no such folder, if it has no .py file or if one is not a problem.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ProblemError(f"no folder {folder}: expected one with .py files in KernelBench's format")
    files = sorted((file for file in folder.glob("*.py") if file.is_file()), key=_numerically)
    if not files:
        below = sorted(child.name for child in folder.iterdir() if any(child.glob("*.py")))
        hint = f"; its subfolders {', '.join(below)} have some" if below else ""
        raise ProblemError(f"no .py file in {folder}: expected problems in KernelBench's format{hint}")
    return [_load_file(file, str(file)) for file in files]


def check_source(source: str, where: str) -> ast.Module:
    """The syntax tree of a problem's text, if it defines what KernelBench's format asks for.

    Raises ProblemError naming `where` for a syntax error, an empty text or a missing definition.
    """
    try:
        tree = parse(source)
    except SyntaxError as error:
        line = f" in line {error.lineno}: {(error.text or '').strip()!r:.120}" if error.lineno else ""
        raise ProblemError(f"{where} is not Python: {error.msg}{line}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"{where} cannot be parsed as Python: {error or type(error).__name__}") from error
    defined = set(_defined_names(tree.body))
    missing = [name for name in REQUIRED if name not in defined]
    if missing:
        found = ", ".join(sorted(defined)[:12]) or "nothing"
        raise ProblemError(
            f"{where} is not a problem: expected class Model and functions get_inputs and get_init_inputs at "
            f"the top level (KernelBench's format), found {found}; it lacks {', '.join(missing)}"
        )
    return tree


def _load_kernelbench(ref: str, root: str | None) -> Problem:
    root = root or os.environ.get(ROOT_VARIABLE)
    if not root:
        raise ProblemError(
            f"{ref} is a problem of KernelBench, and where that is was not said: give its checkout or a "
            f"parquet file of its data set with --kernelbench or in {ROOT_VARIABLE}"
        )
    entry = kernelbench.find(ref, root)
    if entry.path is not None:
        source = read_source(entry.path)
    else:
        source = entry.code or ""
        _refuse_empty(source, f"{entry.name} in {entry.where}")
    check_source(source, f"{entry.name} in {entry.where}" if entry.path is None else entry.where)
    return Problem(id=entry.id, name=entry.name, source=source, level=entry.level)


def _load_file(path: Path, ref: str) -> Problem:
    source = read_source(path)
    check_source(source, str(path))
    level = re.fullmatch(r"level(\d+)", path.absolute().parent.name)
    return Problem(id=ref, name=path.stem, source=source, level=int(level[1]) if level else 0)


def _load_bundled(path: Path) -> Problem:
    source = read_source(path)
    documentation = ast.get_docstring(check_source(source, str(path))) or ""
    seed = BUNDLED / "seeds" / path.name
    return Problem(
        id=path.stem,
        name=path.stem,
        source=source,
        level=int(path.parent.name.removeprefix("level")),
        statement=_statement(documentation),
        seed=read_source(seed) if seed.exists() else None,
    )


def _statement(documentation: str) -> str:
    """The docstring's paragraph that begins with `Exploit:`, as one line without that word."""
    match = re.search(r"^Exploit:\s*(.*?)\s*(\n\s*\n|\Z)", documentation, re.MULTILINE | re.DOTALL)
    return re.sub(r"\s+", " ", match[1]) if match else ""


def _bundled_files() -> dict[str, Path]:
    return {path.stem: path for path in sorted(BUNDLED.glob("level[0-9]/[!_]*.py"))}


def read_source(path: Path) -> str:
    """The exact text of a file; raises ProblemError if it is missing, too large, empty or not UTF-8."""
    try:
        if not path.is_file():
            raise ProblemError(f"{_absence(path)}: expected a .py file in KernelBench's format")
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise ProblemError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > SIZE_LIMIT:
        raise ProblemError(f"{path} is larger than {SIZE_LIMIT} bytes: that is no problem file")
    try:
        source = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path} is not UTF-8 text: byte {error.start} is {content[error.start]:#04x}") from error
    _refuse_empty(source, str(path))
    return source


def _absence(path: Path) -> str:
    """What stands at a path instead of a file, with the nearest name in its folder."""
    if path.is_dir():
        return f"{path} is a folder (name one of its files)"
    if path.exists():
        return f"{path} is not a regular file"
    names = [entry.name for entry in path.parent.glob("*.py")] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"no file {path}" + (f" (did you mean {path.parent / near[0]}?)" if near else "")


def _refuse_empty(source: str, where: str) -> None:
    if not source.strip():
        raise ProblemError(f"{where} is empty: expected a problem in KernelBench's format")


def _defined_names(body: list[ast.stmt]) -> Iterator[str]:
    """Names that a module's statements bind at the top level, also inside if, try and with."""
    for statement in body:
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            yield statement.name
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in statement.names)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        else:
            for part in ("body", "orelse", "finalbody"):
                yield from _defined_names(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from _defined_names(handler.body)


def _numerically(path: Path) -> tuple[int, str]:
    number = re.match(r"\d+", path.name)
    return (int(number[0]) if number else -1, path.name)
