"""Parsing Python that others wrote."""

from __future__ import annotations

import ast
import threading
import warnings

_one_at_a_time = threading.Lock()
"""Parsing in several threads at once can fail with SystemError (AST recursion depth) before Python 3.12."""


def parse(source: str) -> ast.Module:
    """The syntax tree; warnings about the source are not shown. SyntaxError, ValueError, RecursionError or MemoryError
    for what cannot be parsed."""
    with _one_at_a_time, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)
