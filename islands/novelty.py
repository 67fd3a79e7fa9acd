"""Is this program new? Fingerprints of source text that ignore what no compiler sees."""

from __future__ import annotations

import hashlib
import io
import re
import token
import tokenize

CPP_TOKEN = re.compile(
    r"""
      (?P<tunable>//\s*tune:[^\n]*)
    | (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<raw>R"(?P<fence>[^\s()\\]{0,16})\(.*?\)(?P=fence)")
    | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | (?P<newline>\n)
    | (?P<space>(?:[^\S\n]|\\\n)+)
    | (?P<word>[A-Za-z_$][\w$]*|\.?\d(?:[eEpP][+-]|[\w.'])*)
    | (?P<mark>\+\+|--|->|::|<<=?|>>=?|&&|\|\||\#\#|\.\.\.|[-+*/%&|^!=<>]=|\S)
    """,
    re.VERBOSE | re.DOTALL,
)

LOOKS_LIKE_CODE = re.compile(r"[;{}]|^\s*#\s*include", re.MULTILINE)

TUNABLE = re.compile(r"=[^=;\n]*;(?=[^\n;]*//\s*tune:)")


def fingerprint(source: str) -> str:
    """Hex digest of the program's tokens: equal for sources that differ only in comments and spacing.

    Python is read by its own tokenizer (never executed), docstrings dropped; a multi-line string that looks
    like C++ is read as C++, where `// tune:` comments count, because the tune mutator obeys them. A source
    that is not Python's grammar is taken as C++ altogether.
    """
    try:
        tokens = _python_tokens(source)
    except (tokenize.TokenError, SyntaxError, ValueError):
        tokens = _cpp_tokens(source)
    return hashlib.sha256("\x00".join(tokens).encode("utf-8", "surrogatepass")).hexdigest()


def skeleton(source: str) -> str:
    """Hex digest of the source without the values of its tunables: equal for programs that differ only there.

    A tunable is `NAME = value;` on a line that ends in a `// tune:` comment.
    """
    return hashlib.sha256(TUNABLE.sub("= ;", source).encode("utf-8", "surrogatepass")).hexdigest()


def _python_tokens(source: str) -> list[str]:
    kept: list[str] = []
    for kind, text, *_ in _without_docstrings(list(tokenize.generate_tokens(io.StringIO(source).readline))):
        if kind in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING):
            continue
        if kind == token.STRING and "\n" in text and LOOKS_LIKE_CODE.search(text):
            kept += ["<code>", *_cpp_tokens(text), "</code>"]
        elif kind in (token.NEWLINE, token.INDENT, token.DEDENT):
            kept.append(token.tok_name[kind])
        else:
            kept.append(text)
    return kept


def _without_docstrings(tokens: list[tokenize.TokenInfo]) -> list[tokenize.TokenInfo]:
    """The tokens less the strings that stand alone as a statement."""
    silent = (tokenize.COMMENT, tokenize.NL)
    tokens = [one for one in tokens if one.type not in silent]
    kept, before = [], token.NEWLINE
    for one, after in zip(tokens, [*tokens[1:], None], strict=True):
        alone = before in (token.NEWLINE, token.INDENT, token.DEDENT) and after and after.type == token.NEWLINE
        if one.type == token.STRING and alone:
            continue
        kept.append(one)
        before = one.type
    return kept


def _cpp_tokens(text: str) -> list[str]:
    """Tokens of C++; a line's end counts only after a preprocessor directive."""
    kept: list[str] = []
    line_begins, in_directive = True, False
    for match in CPP_TOKEN.finditer(text):
        kind, word = match.lastgroup, match[0]
        if kind == "fence":
            kind = "raw"
        if kind == "newline":
            if in_directive:
                kept.append("\n")
            line_begins, in_directive = True, False
        elif kind == "tunable":
            kept.append(" ".join(word.split()))
        elif kind not in ("comment", "space"):
            in_directive = in_directive or (line_begins and word == "#")
            line_begins = False
            kept.append(word)
    return kept
