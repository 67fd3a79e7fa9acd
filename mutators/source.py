"""A candidate's Python file seen as its two editable parts: the C++ text and the compiler flags."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass

from mutators.proposal import Refusal
from problems.syntax import parse

TEXT_NAMES = ("SOURCE", "cpp_source", "cpp_sources", "cuda_source", "cpp_src", "source")
FLAG_NAMES = ("CFLAGS", "extra_cflags")


@dataclass(frozen=True, slots=True)
class Part:
    """A literal's place in the file, in bytes: `[start, end)`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One candidate file; `with_cpp` and `with_flags` change a part and leave every other byte as it is."""

    file: str
    """The whole Python text."""
    cpp: str
    """The C++ program, as the compiler sees it."""
    flags: tuple[str, ...]
    """Compiler flags; empty where the file has no list of them."""
    text_part: Part
    flag_part: Part | None
    """None where the file names no flags."""
    ldflag_gap: int | None = None
    """Where `extra_ldflags` may be put in: a call that names cflags alone cannot link OpenMP."""

    @property
    def sha256(self) -> str:
        """Hex digest of the file's bytes: equals the candidate's `source_sha256`."""
        return hashlib.sha256(self.file.encode()).hexdigest()

    def with_cpp(self, cpp: str) -> KernelSource | Refusal:
        """The file with another C++ text."""
        literal = self._literal(cpp)
        if isinstance(literal, Refusal):
            return literal
        return parse_source(_splice(self.file, self.text_part, literal))

    def with_flags(self, flags: tuple[str, ...]) -> KernelSource | Refusal:
        """The file with other compiler flags."""
        if self.flag_part is None:
            return Refusal("the file has no list of compiler flags (CFLAGS = [...] or extra_cflags=[...])")
        literal = "[" + ", ".join(_quoted(flag) for flag in flags) + "]"
        file = self.file
        if self.ldflag_gap is not None and "-fopenmp" in flags:
            gap = Part(self.ldflag_gap, self.ldflag_gap)
            file = _splice(file, gap, ', extra_ldflags=["-fopenmp"]')
        return parse_source(_splice(file, self.flag_part, literal))

    def _literal(self, cpp: str) -> str | Refusal:
        old = self.file.encode()[self.text_part.start : self.text_part.end].decode()
        quotes = "'''" if old.rstrip().endswith("'''") else '"""'
        if quotes in cpp or cpp.endswith(quotes[0]):
            return Refusal(f"the C++ text holds {quotes}, which would end its Python literal")
        raw = "r" if old[:1] in "rR" or "\\" in cpp else ""
        if raw and cpp.endswith("\\"):
            return Refusal("the C++ text ends in a backslash, which a raw literal cannot hold")
        return f"{raw}{quotes}{cpp}{quotes}"


def parse_source(file: str) -> KernelSource | Refusal:
    """The editable parts of a candidate, or why it has none. The file is parsed, never run."""
    try:
        tree = parse(file)
    except (SyntaxError, ValueError) as error:
        return Refusal(f"the candidate is not valid Python: {error}")
    text = _text_literal(tree)
    if text is None:
        return Refusal(
            'no C++ text found: expected SOURCE = r"""...""" or a string given to load_inline(cpp_sources=...)'
        )
    offsets = _line_offsets(file)
    list_node, gap_node = _flag_list(tree)
    flags = [str(item.value) for item in list_node.elts if isinstance(item, ast.Constant)] if list_node else []
    return KernelSource(
        file=file,
        cpp=str(text.value),
        flags=tuple(flags),
        text_part=_part(text, offsets),
        flag_part=_part(list_node, offsets) if list_node else None,
        ldflag_gap=_part(gap_node, offsets).end if gap_node else None,
    )


def _text_literal(tree: ast.Module) -> ast.Constant | None:
    """The longest string constant with a name that holds C++, assigned or passed under such a name."""
    found: list[ast.Constant] = []
    wanted = set(TEXT_NAMES) | _passed_names(tree)
    for node in ast.walk(tree):
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            value = node.value if _target(node) in wanted else None
        elif isinstance(node, ast.keyword):
            value = node.value if node.arg in ("cpp_sources", "cpp_source") else None
        if isinstance(value, ast.List) and len(value.elts) == 1:
            value = value.elts[0]
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found.append(value)
    return max(found, key=lambda constant: len(str(constant.value)), default=None)


def _target(assignment: ast.Assign) -> str:
    target = assignment.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _passed_names(tree: ast.Module) -> set[str]:
    """Names given to load_inline as its C++ text."""
    names: set[str] = set()
    for call in _load_inline_calls(tree):
        values = [keyword.value for keyword in call.keywords if keyword.arg in ("cpp_sources", "cpp_source")]
        values += call.args[1:2]
        for value in values:
            names |= {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    return names


def _load_inline_calls(tree: ast.Module) -> list[ast.Call]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if ast.unparse(call.func).split(".")[-1] == "load_inline"]


def _flag_list(tree: ast.Module) -> tuple[ast.List | None, ast.keyword | None]:
    """The list of flags; and the keyword after which ldflags must be added before OpenMP can link."""
    for node in ast.walk(tree):
        found = _strings(node.value) if isinstance(node, ast.Assign) and _target(node) in FLAG_NAMES else None
        if found is not None:
            return found, None
    for call in _load_inline_calls(tree):
        has_ldflags = any(keyword.arg == "extra_ldflags" for keyword in call.keywords)
        for keyword in call.keywords:
            found = _strings(keyword.value) if keyword.arg == "extra_cflags" else None
            if found is not None:
                return found, None if has_ldflags else keyword
    return None, None


def _strings(node: ast.expr) -> ast.List | None:
    """The node, where it is a list of string literals."""
    if not isinstance(node, ast.List):
        return None
    plain = all(isinstance(item, ast.Constant) and isinstance(item.value, str) for item in node.elts)
    return node if plain else None


def _line_offsets(file: str) -> list[int]:
    """Byte offset of every line's first byte; lines as ast counts them."""
    offsets = [0]
    for line in file.encode().split(b"\n"):
        offsets.append(offsets[-1] + len(line) + 1)
    return offsets


def _part(node: ast.expr | ast.keyword, offsets: list[int]) -> Part:
    start = offsets[node.lineno - 1] + node.col_offset
    return Part(start, offsets[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0))


def _splice(file: str, part: Part, text: str) -> str:
    data = file.encode()
    return (data[: part.start] + text.encode() + data[part.end :]).decode()


def _quoted(flag: str) -> str:
    return '"' + flag.replace("\\", "\\\\").replace('"', '\\"') + '"'
