"""Is this program new? Three levels of sameness, each a pure function of source text; none executes it.

exact        the same bytes.
fingerprint  the same syntax tree, and the same tokens of C++ in it: comments, docstrings and spacing are left out
             wherever they cannot matter. Names stay: a Python name may be looked up as text at run time, and a C++
             one may be a macro's argument. Programs in which only local variables have other names are found after
             the build, by their binaries.
host         the same outside the code that is compiled ahead: with equal binaries (fitness/binaries.py) two programs
             of the same host are the same program.

Wherever it is in doubt whether a difference matters, it does: a source that reads itself, or a string of C++ that is
used for anything but load_inline, counts as it stands. Equal digests mean equal behaviour; different ones mean little.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import problems.syntax
from islands import cpp_tokens as tokens_module
from islands import trees
from islands.candidate import Candidate, Digests
from islands.cpp_tokens import cpp_tokens
from islands.trees import nodes_of, tree_of

DOUBTFUL_PYTHON = (
    *("__doc__", "__file__", "__spec__", "__loader__", "__cached__", "__code__", "__main__", "__dict__", "__import__"),
    *("getdoc", "inspect", "linecache", "traceback", "_getframe", "lineno", "importlib", "sys.modules", "sys.argv"),
    *("exec(", "globals(", "locals(", "vars(", "getattr(", "coding:", "coding="),
)
"""A module with one of these may read its own text, or use a string under another name than is seen here."""

TUNABLE = re.compile(r"=[^=;\n]*;(?=[^\n;]*//\s*tune:)")
TUNABLE_PYTHON = re.compile(r"=[^=#\n]*(?=#\s*tune:)")
TUNABLE_MACRO = re.compile(r"(?<=#define)(\s+\w+)[^\n/]*(?=//\s*tune:)")
TUNABLE_LINE = re.compile(r"^[^\n#]*#[ \t]*tune:[^\n]*", re.MULTILINE)

LONGEST = 400_000
"""Characters; longer sources count as they stand: they would take a second or more."""

REPLACED = ("value", "body")
"""Fields of constants and of functions in whose place something else is written."""

SILENT_FIELDS = frozenset({"ctx", "kind", "type_comment"})
"""Fields of syntax trees that follow from the rest, or that no program sees."""

RECENT = 64
"""Sources whose digests are kept."""

SYNTAX = problems.syntax.__file__

LOAD = "load_inline"
SOURCE_ARGUMENTS = ("cpp_sources", "cuda_sources")
"""Arguments of load_inline that are C++ or CUDA: its second and third, or by name."""


def exact(source: str) -> str:
    """Hex digest of the source's bytes: equal for equal text."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


def fingerprint(source: str) -> str:
    """Hex digest of the program: equal for sources that differ only in what no compiler sees.

    Python counts by its syntax tree, docstrings dropped; a string that load_inline compiles counts by its tokens of
    C++. Comments that begin with `tune:` count, because the tune mutator obeys them. A source that is not Python is
    taken as C++ altogether.
    """
    return _digest(_parts(source, is_host=False))


def host(source: str) -> str:
    """Hex digest of the program outside what load_inline compiles and outside the bodies of Triton's kernels.

    Two programs with the same host and the same binaries behave the same: see fitness/binaries.py.
    """
    return _digest(_parts(source, is_host=True))


def skeleton(source: str) -> str:
    """Hex digest of the source without the values of its tunables: equal for programs that differ only there.

    A tunable is `NAME = value;` or `#define NAME value` on a line that ends in a `// tune:` comment, or Python's
    `NAME = value` on one that ends in `# tune:`.
    """
    if "tune:" in source:
        source = TUNABLE_PYTHON.sub("= ", TUNABLE.sub("= ;", source))
        source = TUNABLE_MACRO.sub(r"\1 ", source)
    return exact(source)


@functools.lru_cache(maxsize=RECENT)
def digests(source: str) -> Digests:
    """All three of a source, kept for the latest ones: one program is looked for several times, and takes 1 ms."""
    return Digests(exact(source), fingerprint(source), skeleton(source))


def digests_of(candidate: Candidate) -> Digests:
    """Those of a candidate's source."""
    return candidate.digests or digests(candidate.source)


@functools.cache
def scheme() -> str:
    """Names how digests are made: the text of the modules that make them, and the Python whose syntax trees they read.

    Digests that were stored under another scheme are made anew.
    """
    texts = [Path(file).read_bytes() for file in (__file__, tokens_module.__file__, trees.__file__, SYNTAX)]
    version = ".".join(map(str, sys.version_info[:2]))
    return f"{hashlib.sha256(b'/'.join(texts)).hexdigest()[:16]}-{version}"


def _digest(parts: Sequence[str]) -> str:
    """Lengths between the parts: whatever text they hold, other parts give other bytes."""
    return exact("".join([f"{len(one)}:{one}" for one in parts]))


def _parts(source: str, is_host: bool) -> Sequence[str]:
    if len(source) > LONGEST:
        return "exact", source
    try:
        tree = tree_of(source)
    except SyntaxError:  # no Python: if it was meant to be, then all of its readings fail alike
        return cpp_tokens(source) or ("exact", source)
    except (ValueError, RecursionError, MemoryError):
        return "exact", source
    if any(word in source for word in DOUBTFUL_PYTHON):
        return "exact", source
    nodes = nodes_of(tree)
    others: dict[int, Any] = {}
    for one in _compiled_strings(tree, nodes):
        tokens = [] if is_host else cpp_tokens(str(one.value))
        if tokens is not None:
            others[id(one)] = tuple(tokens)
    if is_host:
        others |= {id(kernel): [] for kernel in _kernels(nodes)}
    try:
        parts = _written(tree, others)
    except ValueError:  # a number of thousands of digits
        return "exact", source
    if "tune:" not in source:
        return parts
    return [*parts, *("".join(line.split()) for line in TUNABLE_LINE.findall(source))]


# -- Python ---------------------------------------------------------------------------------------------


def _written(tree: ast.AST, others: Mapping[int, Any]) -> list[str]:
    """The tree as a list of texts, equal only for equal trees; lone strings are left out.

    `others`: by a node's id what stands in it instead: a constant's value, or a function's body.
    """
    parts: list[str] = []
    waiting: list[Any] = [tree]
    while waiting:
        value = waiting.pop()
        if isinstance(value, ast.AST):
            kind: Any = value.__class__
            parts.append(kind.__name__)
            names, own = _fields(kind), value.__dict__
            if id(value) in others:
                waiting += [others[id(value)] if name in REPLACED else own.get(name) for name in names]
            else:
                waiting += [own.get(name) for name in names]
        elif isinstance(value, list):
            kept = [one for one in value if not _is_lone_string(one)]
            parts.append(f"list {len(kept)}")
            kept.reverse()
            waiting += kept
        elif value is None:
            parts.append("NoneType None")
        else:
            parts.append(f"{value.__class__.__name__} {value!r}")
    return parts


@functools.cache
def _fields(kind: Any) -> tuple[str, ...]:
    """The fields that count, the last first."""
    return tuple(name for name in reversed(kind._fields) if name not in SILENT_FIELDS)


def _is_lone_string(node: object) -> bool:
    """A docstring, or another string that is a statement: nothing reads it."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _compiled_strings(tree: ast.Module, nodes: Sequence[ast.AST]) -> list[ast.Constant]:
    """The strings that are C++ or CUDA for load_inline and serve nothing else.

    Such a string is an argument itself, alone or in a list, or it is assigned to a name at the module's top level,
    once, that stands nowhere else. None where load_inline may be another function.
    """
    if not _is_torchs(nodes):
        return []
    arguments = [one for node in nodes if isinstance(node, ast.Call) and _is_load(node.func) for one in _sources(node)]
    strings = [one for one in arguments if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    read = {id(one) for one in arguments}
    names: dict[str, list[ast.Name]] = {}
    for node in nodes:
        if isinstance(node, ast.Name):
            names.setdefault(node.id, []).append(node)
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name) as target], value=ast.Constant(value=str()) as value):
                others = [one for one in names[name] if one is not target]
                if others and all(id(one) in read for one in others):
                    strings.append(value)
    return strings


def _is_load(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == LOAD) or (isinstance(node, ast.Attribute) and node.attr == LOAD)


def _is_torchs(nodes: Sequence[ast.AST]) -> bool:
    """Whether load_inline is imported and called, and nothing else is done with it or with its name."""
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if _is_load(node) and id(node) not in called:
            return False
        if isinstance(node, ast.alias) and (node.name == LOAD) != ((node.asname or node.name) == LOAD):
            return False  # imported under another name, or another thing under this one
        if LOAD in (getattr(node, "name", ""), getattr(node, "arg", "")) and not isinstance(node, ast.alias):
            return False
    return True


def _sources(call: ast.Call) -> Iterator[ast.expr]:
    """The source arguments of a call of load_inline, those in a list singly."""
    if any(isinstance(one, ast.Starred) for one in call.args):
        return
    named = [one.value for one in call.keywords if one.arg in SOURCE_ARGUMENTS]
    for one in [*call.args[1:3], *named]:
        yield from one.elts if isinstance(one, ast.List | ast.Tuple) else (one,)


def _kernels(nodes: Sequence[ast.AST]) -> list[ast.FunctionDef]:
    """The functions whose innermost decorator is triton.jit.

    None where `triton` may be another module, or where a kernel may be called as plain Python (`kernel.fn`).
    """
    found: list[ast.FunctionDef] = []
    for node in nodes:
        match node:
            case ast.Name(id="triton", ctx=ast.Store() | ast.Del()) | ast.Attribute(attr="fn"):
                return []
            case ast.FunctionDef(decorator_list=[*_, ast.Attribute(value=ast.Name(id="triton"), attr="jit")]):
                found.append(node)
    return found
