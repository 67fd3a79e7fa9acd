"""Which pointer parameters a candidate's own calls may give the same array."""

from __future__ import annotations

import ast
import itertools

from mutators.cpp.scope import declarations_in
from mutators.cpp.tree import Node, arguments, called_name, function_name, parameters, text, walk
from mutators.source import KernelSource
from problems.syntax import parse

FRESH = ("empty", "zeros", "ones", "full", "clone", "new_empty", "new_zeros", "rand")


def aliased_parameters(kernel: KernelSource, root: Node, function: Node) -> frozenset[frozenset[str]]:
    """Pairs of parameter names that may be one array, by every call of the function that the file shows.

    Two arguments may alias where the tensors behind them share a root: `y = x.view(-1)` shares x's,
    `y = torch.empty_like(x)` has its own.
    """
    names = [next(iter(declarations_in(parameter)), None) for parameter in parameters(function)]
    pointers = [(place, name.name) for place, name in enumerate(names) if name is not None and name.kind == "pointer"]
    pairs = set()
    for roots in (*_python_calls(kernel.file, function_name(function)), *_cpp_calls(root, function_name(function))):
        for (first, first_name), (second, second_name) in itertools.combinations(pointers, 2):
            if max(first, second) < len(roots) and roots[first] & roots[second]:
                pairs.add(frozenset((first_name, second_name)))
    return frozenset(pairs)


def _python_calls(file: str, name: str) -> list[list[set[str]]]:
    """For each call `library.NAME(...)`, the tensor roots behind each argument."""
    found = []
    for scope in ast.walk(parse(file)):
        if not isinstance(scope, ast.FunctionDef):
            continue
        roots = _roots(scope)
        for call in ast.walk(scope):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == name:
                found.append([_names(argument, roots) for argument in call.args])
    return found


def _roots(scope: ast.FunctionDef) -> dict[str, set[str]]:
    """Each local name -> the names whose memory it may share."""
    roots: dict[str, set[str]] = {}
    for node in ast.walk(scope):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    fresh = _is_fresh(node.value)
                    roots[name.id] = {f"{name.id}:{node.lineno}"} if fresh else _names(node.value, roots)
    return roots


def _is_fresh(value: ast.expr) -> bool:
    """Whether the expression makes a tensor of its own."""
    if not isinstance(value, ast.Call):
        return False
    return any(ast.unparse(value.func).split(".")[-1].startswith(word) for word in FRESH)


def _names(value: ast.expr, roots: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            found.add(f"self.{node.attr}")
        elif isinstance(node, ast.Name) and node.id not in ("ctypes", "torch", "self", "library"):
            found |= roots.get(node.id, {node.id})
    return found - _callables(value)


def _callables(value: ast.expr) -> set[str]:
    """Names that are called, such as a helper `ptr(x)`: they are not tensors."""
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def _cpp_calls(root: Node, name: str) -> list[list[set[str]]]:
    """For each call in the C++ text, the identifiers in each argument."""
    found = []
    for node in walk(root):
        if node.type == "call_expression" and called_name(node) == name:
            found.append(
                [{text(part) for part in walk(argument) if part.type == "identifier"} for argument in arguments(node)]
            )
    return found
