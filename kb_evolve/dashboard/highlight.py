"""Source as HTML spans: Python and, in its long strings, C++; plain where Pygments is not installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from markupsafe import Markup

from kb_evolve.report.diff import source_text

CLASSES = (
    ("Comment", "hc"),
    ("Keyword", "hk"),
    ("Literal.String", "hs"),
    ("Literal.Number", "hn"),
    ("Name.Function", "hf"),
    ("Name.Class", "hf"),
    ("Name.Decorator", "hf"),
    ("Name.Builtin", "hb"),
)
"""Pygments' token types, and the style sheet's classes for them."""

LONG_STRING = 40
"""Characters from which a string of several lines is read as C++."""


def highlighted(source: str) -> list[Markup]:
    """The lines of a source, nothing hidden, capped, every text in them escaped."""
    text = source_text(source)
    try:
        tokens = _tokens(text)
    except ImportError:
        tokens = iter([("", text)])
    return list(_lines(tokens))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """(class, text) of each token."""
    from pygments.lexers.c_cpp import CppLexer
    from pygments.lexers.python import PythonLexer

    cpp = CppLexer(ensurenl=False, stripnl=False)
    for kind, value in _joined(PythonLexer(ensurenl=False, stripnl=False).get_tokens(text)):
        if "String" in kind and "Doc" not in kind and len(value) > LONG_STRING and "\n" in value:
            yield from ((_class(str(inner)), part) for inner, part in cpp.get_tokens(value))
        else:
            yield _class(kind), value


def _joined(tokens: Iterable[tuple[Any, str]]) -> Iterator[tuple[str, str]]:
    """Neighbours of one type as one token: a lexer gives a long string line by line."""
    last, held = "", ""
    for kind, value in tokens:
        name = "Token.Literal.String" if "Literal.String" in str(kind) and "Doc" not in str(kind) else str(kind)
        if name == last:
            held += value
            continue
        if held:
            yield last, held
        last, held = name, value
    if held:
        yield last, held


def _class(kind: str) -> str:
    return next((style for prefix, style in CLASSES if kind.startswith(f"Token.{prefix}")), "")


def _lines(tokens: Iterable[tuple[str, str]]) -> Iterator[Markup]:
    line = Markup()
    for style, value in tokens:
        first, *rest = value.split("\n")
        line += _span(style, first)
        for part in rest:
            yield line
            line = _span(style, part)
    if line:
        yield line


def _span(style: str, text: str) -> Markup:
    if not text:
        return Markup()
    return Markup('<span class="{}">{}</span>').format(style, text) if style else Markup("{}").format(text)
