"""Syntax trees of sources that were read a moment ago: a proposal's program is parsed for several purposes."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence

from problems.syntax import parse

KEPT = 8
"""Trees; one of a 7 KB program takes some 200 KB."""


@functools.lru_cache(maxsize=KEPT)
def tree_of(source: str) -> ast.Module:
    """The syntax tree, shared: whoever gets it must not change it. Raises what problems.syntax.parse raises."""
    return parse(source)


def nodes_of(tree: ast.AST) -> Sequence[ast.AST]:
    """All nodes, breadth first as by ast.walk, in half its time; without the marks of how a name is used."""
    found = [tree]
    for node in found:
        for name, value in node.__dict__.items():
            if isinstance(value, ast.AST):
                if name != "ctx":
                    found.append(value)
            elif isinstance(value, list):
                found += [one for one in value if isinstance(one, ast.AST)]
    return found
