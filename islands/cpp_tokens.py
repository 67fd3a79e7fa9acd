"""C++ and CUDA text as tokens: what a compiler sees of it, without comments and without spacing that cannot matter."""

from __future__ import annotations

import functools
import re

CPP_TOKEN = re.compile(
    r"""
      (?P<include>\#[ \t]*include[ \t]*(?:<[^>\n]*>|"[^"\n]*"))
    | (?P<tunable>//[ \t]*tune:[^\n]*)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<open>/\*)
    | (?P<raw>(?:u8|[uUL])?R"(?P<fence>[^\s()\\"]{0,16})\(.*?\)(?P=fence)"\w*)
    | (?P<openraw>(?:u8|[uUL])?R"[^\s()\\"]{0,16}\()
    | (?P<string>(?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')\w*)
    | (?P<newline>\n)
    | (?P<space>[ \t\f\v]+)
    | (?P<word>(?:[^\W\d]|\$)[\w$]*|\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
    | (?P<mark><=>|->\*|<<<|>>>|<<=|>>=|\.\.\.|\+\+|--|->|::|<<|>>|&&|\|\||\#\#|\.\*|[-+*/%&|^!=<>]=|[<%:]:|%>|<%|:>|.)
    """,
    re.VERBOSE | re.DOTALL,
)

PLAIN_TOKEN = re.compile(
    r"""
    (?:[ \t\f\v\n]+|//(?![ \t]*tune:)[^\n]*|/\*.*?\*/)*+
    ( (?!(?:u8|[uUL])["'])(?:[^\W\d]|\$)[\w$]*
    | \.?\d(?:[eEpP][+-]|'\w|[\w.])*
    | (?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')\w*
    | //[^\n]*
    | <=>|->\*|<<<|>>>|<<=|>>=|\.\.\.|\+\+|--|->|::|<<|>>|&&|\|\||\#\#|\.\*|[-+*/%&|^!=<>]=|[<%:]:|%>|<%|:>|[^"'\\uUL]
    | .+
    | )
    """,
    re.VERBOSE | re.DOTALL,
)
"""CPP_TOKEN for text without directives and raw strings, as one group for `findall`: five times as fast. What has no
end (a quote, a backslash) takes all the rest, so that it is the last token."""

ENDED = re.compile(r"""(?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')\w*|[\w$]*""", re.DOTALL)
"""A string, or a word."""

DIRECTIVE = re.compile(r"^[ \t\f\v]*#[^\n]*\n?", re.MULTILINE)

SPLICE = re.compile(r"\\[ \t\f\v]*\n")
"""The end of a line that goes on; compilers remove it first, wherever it stands (C++ standard, lex.phases, 2)."""

DOUBTFUL_TEXT = (
    *("\r", "\0", "??/", "source_location", "__LINE__", "__FILE__", "__DATE__", "__TIME", "__COUNTER__"),
    *("__builtin_LINE", "__builtin_FILE", "# line", "#line"),
)
"""Text with one of these may depend on its own lines, or is read by rules that are not followed here."""

DOUBTFUL_MARKS = frozenset({"/*", "\\", '"', "'", "%:"})
"""Tokens that only a text which cannot be read on its own has: comments and strings without an end, digraphs of #."""

UNPLAIN = frozenset({*DOUBTFUL_MARKS, "#", "##"})
"""Tokens that PLAIN_TOKEN is not made for."""


def cpp_tokens(text: str) -> list[str] | None:
    """Tokens of C++; None where it is in doubt whether they say all, so that the text must count as it stands.

    A line's end and the places of spaces count only in preprocessor directives. Such doubts are macros that make text
    or new tokens of their arguments (# and ##), what has no end, and letters that are none to Python.
    """
    if any(word in text for word in DOUBTFUL_TEXT) or ('R"' in text and SPLICE.search(text)):
        return None
    text = SPLICE.sub("", text) if "\\" in text else text
    kept: list[str] = []
    at = 0
    for directive in DIRECTIVE.finditer(text) if "#" in text else ():
        plain, own = plain_tokens(text[at : directive.start()]), _directive(directive[0])
        if plain is None or own is None:
            return exact_tokens(text)
        kept += [*plain, *own]
        at = directive.end()
    rest = plain_tokens(text[at:])
    return exact_tokens(text) if rest is None else kept + rest


def plain_tokens(text: str) -> list[str] | None:
    """Tokens of lines without directives, as `exact_tokens` gives them; None where these must be asked.

    A comment or a raw string that reaches over the text's end has no end in it, and gives None too.
    """
    last = text.rfind("/*")
    if 'R"' in text or (last >= 0 and text.find("*/", last + 2) < 0):
        return None
    found: list[str] = PLAIN_TOKEN.findall(text)
    while found and not found[-1]:
        found.pop()
    if found and not UNPLAIN.isdisjoint(found):
        return None
    if found and found[-1][0] in "\"'\\uUL" and not ENDED.fullmatch(found[-1]):
        return None
    if not text.isascii() and any(token > "~" and not (token[0].isalpha() or token[0] == "_") for token in found):
        return None
    if "tune:" in text:
        return [" ".join(token.split()) if token.startswith("//") else token for token in found]
    return found


@functools.lru_cache(maxsize=1024)
def _directive(line: str) -> tuple[str, ...] | None:
    tokens = exact_tokens(line)
    return None if tokens is None else tuple(tokens)


def exact_tokens(text: str) -> list[str] | None:
    """Tokens of any text without spliced lines."""
    kept: list[str] = []
    in_directive, spaced, begins_line = False, False, True
    for match in CPP_TOKEN.finditer(text):
        kind, word = match.lastgroup, match[0]
        if kind == "newline":
            kept += ["\n"] if in_directive else []
            in_directive, spaced, begins_line = False, False, True
        elif kind in ("space", "comment"):
            spaced = True
        elif kind == "tunable":
            kept.append(" ".join(word.split()))
        elif _is_doubtful(kind, word, in_directive):
            return None
        else:
            kept += [" ", word] if in_directive and spaced else [word]
            in_directive = in_directive or kind == "include" or (begins_line and word == "#")
            spaced = begins_line = False
    return kept


def _is_doubtful(kind: str | None, word: str, in_directive: bool) -> bool:
    is_odd = kind == "openraw" or word in DOUBTFUL_MARKS or (kind == "mark" and word > "~")
    return is_odd or (in_directive and word in ("#", "##"))
