"""A kernel file that also builds where ninja is not installed."""

from __future__ import annotations

import ast
from pathlib import Path

from problems.syntax import parse

MODULE = "torch.utils.cpp_extension"

NOTE = f"# Stands for `from {MODULE} import load_inline`; put here by kb_evolve's export.\n"


def portable(source: str) -> str | None:
    """`source` with its import of `load_inline` replaced by a function that can do without ninja.

    None where that is not possible: the import is not one plain top-level line, or a call is not of the
    lean form (`functions=None, no_implicit_headers=True, is_python_module=False`, no CUDA source). The
    source is parsed, never run.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    imports = [node for node in ast.walk(tree) if _mentions_module(node)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_load_inline(node.func)]
    if len(imports) != 1 or imports[0] not in tree.body or not _is_plain(imports[0]):
        return None
    if not calls or not all(_is_lean(call) for call in calls):
        return None
    return _replace(source, imports[0])


def _mentions_module(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name == MODULE for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module == MODULE or (
            node.module == "torch.utils" and any(alias.name == "cpp_extension" for alias in node.names)
        )
    return False


def _is_plain(node: ast.AST) -> bool:
    """Whether the node is exactly `from torch.utils.cpp_extension import load_inline`."""
    return isinstance(node, ast.ImportFrom) and [(alias.name, alias.asname) for alias in node.names] == [
        ("load_inline", None)
    ]


def _is_load_inline(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and function.id == "load_inline"


def _is_lean(call: ast.Call) -> bool:
    """Whether the call asks for a plain shared library of one C-ABI source."""
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    if None in options or "cuda_sources" in options or len(call.args) > 2:
        return False
    fixed = {name: node.value for name, node in options.items() if isinstance(node, ast.Constant)}
    return (
        fixed.get("no_implicit_headers") is True
        and fixed.get("is_python_module") is False
        and ("functions" not in options or ("functions" in fixed and fixed["functions"] is None))
    )


def _replace(source: str, node: ast.AST) -> str | None:
    """The source with the node's line replaced; None where the line holds something else, too."""
    assert isinstance(node, ast.ImportFrom) and node.end_lineno is not None
    lines = source.split("\n")
    found = "\n".join(lines[node.lineno - 1 : node.end_lineno]).strip()
    if found.split("#")[0].strip() != f"from {MODULE} import load_inline":
        return None
    lines[node.lineno - 1 : node.end_lineno] = ["", "", NOTE + function_text(), ""]
    return "\n".join(lines)


def function_text() -> str:
    """The text of carried/load_inline.py's function."""
    text = (Path(__file__).parent / "carried" / "load_inline.py").read_text(encoding="utf-8")
    return text[text.index("def load_inline") :].rstrip("\n")
