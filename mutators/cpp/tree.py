"""C++ as a syntax tree: parsing, walking, editing."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Node = Any
"""A tree_sitter.Node; the package is imported only where a text is parsed."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes `[start, end)` become `text`."""

    start: int
    end: int
    text: str


@functools.cache
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_cpp

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))


@functools.lru_cache(maxsize=64)
def parse(cpp: str) -> Node:
    """The root node (translation_unit) of a C++ text."""
    return _parser().parse(cpp.encode()).root_node


def text(node: Node) -> str:
    """The node's own characters."""
    return node.text.decode()


@functools.lru_cache(maxsize=8_192)
def walk(node: Node) -> tuple[Node, ...]:
    """The node and everything below it, in the order of the text."""
    found, waiting = [], [node]
    while waiting:
        current = waiting.pop()
        found.append(current)
        waiting.extend(reversed(current.children))
    return tuple(found)


def named(node: Node) -> list[Node]:
    """The node's children without punctuation and comments."""
    return [child for child in node.named_children if child.type != "comment"]


def inside(node: Node, outer: Node) -> bool:
    """Whether the node lies within `outer` (or is it)."""
    return outer.start_byte <= node.start_byte and node.end_byte <= outer.end_byte


def ancestors(node: Node) -> Iterator[Node]:
    """Parents, innermost first."""
    while node.parent is not None:
        node = node.parent
        yield node


def functions(root: Node) -> list[Node]:
    """Function definitions that parsed without error."""
    return [node for node in walk(root) if node.type == "function_definition" and not node.has_error]


def function_name(function: Node) -> str:
    """The plain name of a definition, or "" where it has none."""
    declarator = function.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    return text(name).split("::")[-1] if name is not None else ""


def parameters(function: Node) -> list[Node]:
    """The parameter declarations of a definition."""
    for node in walk(function.child_by_field_name("declarator")):
        if node.type == "parameter_list":
            return [child for child in named(node) if child.type.endswith("parameter_declaration")]
    return []


def called_name(call: Node) -> str:
    """The last component of a call's function: `exp` for `std::exp(x)`, `size` for `v.size()`."""
    function = call.child_by_field_name("function")
    if function.type == "template_function":
        function = function.child_by_field_name("name")
    if function.type == "field_expression":
        function = function.child_by_field_name("field")
    name = text(function).split("<")[0] if "<" in text(function) and "::" not in text(function) else text(function)
    return name.split("::")[-1].split("<")[0].strip()


def arguments(call: Node) -> list[Node]:
    """The arguments of a call."""
    return named(call.child_by_field_name("arguments"))


def strip(node: Node) -> Node:
    """The expression without parentheses and value-keeping casts around it."""
    while True:
        if node.type in ("parenthesized_expression", "condition_clause") and len(named(node)) == 1:
            node = named(node)[0]
        elif node.type == "cast_expression":
            node = node.child_by_field_name("value")
        elif node.type == "call_expression" and _is_cast(node):
            node = arguments(node)[0]
        else:
            return node


CAST_NAMES = {"int64_t", "int32_t", "size_t", "int", "long", "float", "double", "uint32_t", "uint64_t", "ptrdiff_t"}


def _is_cast(call: Node) -> bool:
    name = called_name(call)
    return len(arguments(call)) == 1 and (name in CAST_NAMES or name in ("static_cast", "reinterpret_cast"))


def apply_edits(cpp: str, edits: tuple[Edit, ...]) -> str:
    """The text with non-overlapping edits made."""
    data = cpp.encode()
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end), reverse=True):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    return data.decode()


def indent_of(node: Node) -> str:
    """The white space with which the node's line begins."""
    line = _line_up_to(node)
    return line[: len(line) - len(line.lstrip())]


def starts_line(node: Node) -> bool:
    """Whether nothing but white space stands before the node on its line."""
    return not _line_up_to(node).strip()


def _line_up_to(node: Node) -> str:
    root = node
    while root.parent is not None:
        root = root.parent
    return root.text[: node.start_byte - root.start_byte].rsplit(b"\n", 1)[-1].decode()


def bracketed(node: Node) -> str:
    """The expression's text, in parentheses unless it is a name or a number."""
    return text(node) if node.type in ("identifier", "number_literal") else f"({text(node)})"


def replace_within(node: Node, changes: dict[tuple[int, int], str]) -> str:
    """The node's text with inner ranges (absolute bytes) replaced."""
    base = node.start_byte
    edits = tuple(Edit(start - base, end - base, new) for (start, end), new in changes.items())
    return apply_edits(text(node), edits)
