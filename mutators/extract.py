"""The program in a reply of prose and code blocks, and what the prose says about it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from islands.trees import tree_of
from mutators.dialogue import Reply
from mutators.edits import MARKERS, MOST_CHARACTERS, printable
from mutators.proposal import Refusal

PYTHON = ("python", "py", "python3")
FOREIGN = ("c", "c++", "cc", "cpp", "cu", "cuda", "cxx", "hip")
MARKDOWN = ("markdown", "md")
MOST_RATIONALE = 300
MOST_BLOCKS = 100
MOST_DOCUMENTS = 4
"""Fenced Markdown documents in a reply that are looked into."""

PROGRAM = re.compile(r"^class[ \t]+ModelNew\b", re.MULTILINE)
FOREIGN_TEXT = re.compile(r'^[ \t]*(?:#include\b|extern "C"|__global__ |template ?<)', re.MULTILINE)
THINKING = "<think>"
THOUGHT = re.compile(r"^[^\n]*</think>[ \t]*$", re.MULTILINE)
"""The end of it. Models served without a parser for them write their reasoning into the reply, before the answer."""
STATED = re.compile(r"^[ \t>*_#-]*RATIONALE[*_]*:[*_ \t]*(\S[^\n]*)", re.MULTILINE | re.IGNORECASE)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^a-z])")
ITEM = re.compile(r"^[ \t>*_#-]*(?:\d+[.)][ \t]+)?")
NO_PROSE = re.compile(r"^[ \t]*(?:#|```|~~~)")
LANGUAGE = re.compile(r"[\s{.]*([\w+]+)")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a reply."""

    language: str
    """The first word behind the fence, in lower case."""
    text: str
    line: int
    """Where its fence stands, counted from 1 in the answer."""
    end: int
    """The last line that belongs to it, counted alike."""
    is_closed: bool


def code_of(reply: Reply, known: Sequence[str] = ()) -> str | Refusal:
    """The whole program of a reply, or why it has none; never raises.

    The block that defines `ModelNew` is taken. Of several, the one that all others are parts of: a program whose
    parts are explained once more. Two different programs are ambiguous and refused: no rule says which of them is
    the earlier version, and a wrong guess would be measured as the model's. A copy of a `known` program does not
    count. Where no block defines `ModelNew`, the only block of Python is taken. A reply without a fence is taken if
    all of it is a program. The program must be Python that parses; it is not run.
    """
    answer = answer_of(reply)
    if isinstance(answer, Refusal):
        return answer
    if "\0" in answer:
        return Refusal(f"line {answer.count(chr(10), 0, answer.index(chr(0))) + 1} of the reply holds a NUL character")
    blocks = fenced_blocks(answer)
    if blocks and not blocks[-1].is_closed and reply.finish_reason in ("length", "content_filter"):
        return Refusal(_truncated(reply, f"inside the block that begins at line {blocks[-1].line}"))
    if len(blocks) > MOST_BLOCKS:
        return Refusal(f"the reply has {len(blocks):,} code blocks, at most {MOST_BLOCKS} are read: send one")
    if not blocks:
        return _unfenced(reply, answer)
    programs = [block for block in blocks if PROGRAM.search(block.text)]
    copies = {text.strip().replace("\r\n", "\n") for text in known}
    fresh = [block for block in programs if block.text.strip() not in copies]
    if programs and not fresh:
        return Refusal("it changed nothing: the only program in the reply is one that was shown")
    chosen = _only(fresh) if fresh else _only_python(blocks)
    if isinstance(chosen, Refusal):
        return chosen
    return check_program(chosen.text) or chosen.text


def answer_of(reply: Reply) -> str | Refusal:
    """The reply's text without reasoning that a model wrote before it between <think> and </think>."""
    if len(reply.text) > MOST_CHARACTERS:
        return Refusal(f"the reply has {len(reply.text):,} characters, at most {MOST_CHARACTERS:,} are read")
    begins = reply.text.lstrip().startswith(THINKING)
    end = THOUGHT.search(reply.text)
    if begins and end is None:
        return Refusal(_truncated(reply, "inside its <think> part") + ": think less, then answer")
    text = reply.text[end.end() :] if end else reply.text
    if text.strip():
        return text
    if reply.finish_reason == "length":
        return Refusal(_truncated(reply, "before its answer") + ": think less, then answer")
    return Refusal(f"the reply is empty (finish reason {printable(reply.finish_reason, 40)})")


@functools.lru_cache(maxsize=4)
def fenced_blocks(text: str, before: int = 0, depth: int = 0) -> tuple[Block, ...]:
    """The fenced blocks of a text, by CommonMark's rules; those of a fenced Markdown document instead of it.

    Those of the last texts are kept, because a reply is read several times.

    A fence that is indented by four columns or more is none to CommonMark. Models indent so in lists, hence such
    fences count where there are no others. `before` lines stand in front of the text.
    """
    if "```" not in text and "~~~" not in text:
        return ()
    blocks = _parsed(text, ["fence", "code"], before) or _parsed(text, ["fence"], before)
    documents = [block for block in blocks if block.language in MARKDOWN and depth < 2][:MOST_DOCUMENTS]
    flat: list[Block] = []
    for block in blocks:
        is_document = any(block is document for document in documents)
        flat += (fenced_blocks(block.text, block.line, depth + 1) if is_document else []) or [block]
    return tuple(flat)


def check_program(source: str) -> Refusal | None:
    """Why a text cannot be a candidate's file: no Python, or nothing that can be stored."""
    if len(source) > MOST_CHARACTERS:
        return Refusal(f"the program has {len(source):,} characters, at most {MOST_CHARACTERS:,} are taken")
    try:
        tree = tree_of(source)
    except UnicodeEncodeError as error:
        line = source.count("\n", 0, error.start) + 1
        return Refusal(f"line {line} of the program holds a lone surrogate, which UTF-8 cannot store")
    except (MemoryError, RecursionError):
        return Refusal("the program is not valid Python: it is nested too deeply")
    except (SyntaxError, ValueError) as error:
        return Refusal(f"the program is not valid Python: {_syntax(error, source)}")
    return None if tree.body else Refusal("the program is empty")


def rationale_of(text: str) -> str:
    """What a reply says it does: its line `RATIONALE: ...`, else its first sentence outside of code; empty for none."""
    if len(text) > MOST_CHARACTERS:
        return ""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for block in fenced_blocks(text):
        lines[block.line - 1 : block.end] = [""] * (block.end - block.line + 1)
    prose = _without_edits(lines)
    stated = STATED.search("\n".join(prose))
    if stated:
        return printable(stated[1].rstrip().removesuffix("**"), MOST_RATIONALE)
    for paragraph in "\n".join(prose).split("\n\n"):
        lines = [ITEM.sub("", line).strip(" \t*_") for line in paragraph.split("\n") if not NO_PROSE.match(line)]
        sentence = SENTENCE_END.split(" ".join(lines).strip(), maxsplit=1)[0]
        if any(one.isalpha() for one in sentence):
            return printable(sentence, MOST_RATIONALE)
    return ""


def _parsed(text: str, rules: list[str], before: int) -> list[Block]:
    from markdown_it import MarkdownIt

    reader = MarkdownIt("zero").enable(rules).disable("inline")
    blocks = []
    for token in reader.parse(text):
        if token.type == "fence" and token.map:
            start, end = token.map
            inside = len(token.content.removesuffix("\n").split("\n")) if token.content else 0
            language = LANGUAGE.match(token.info.lower())
            blocks.append(
                Block(
                    language[1] if language else "",
                    token.content,
                    before + start + 1,
                    before + end,
                    is_closed=inside == end - start - 2,
                )
            )
    return blocks


def _unfenced(reply: Reply, answer: str) -> str | Refusal:
    if PROGRAM.search(answer) and check_program(answer) is None:
        return answer
    if reply.finish_reason == "length":
        return Refusal(_truncated(reply, "before a code block began"))
    return Refusal("the reply has no fenced code block: put the whole program into one block, ```python ... ```")


def _only(programs: Sequence[Block]) -> Block | Refusal:
    """The program that all others are parts of."""
    whole = max(programs, key=lambda block: len(block.text.strip()))
    if all(block.text.strip() in whole.text for block in programs):
        return whole
    lines = ", ".join(str(block.line) for block in programs[:8])
    return Refusal(
        f"the reply holds {len(programs)} blocks that define ModelNew, at lines {lines}, and they differ: answer with "
        "exactly one program"
    )


def _only_python(blocks: Sequence[Block]) -> Block | Refusal:
    """The only block of Python in a reply that defines ModelNew nowhere."""
    found = [block for block in blocks if block.language in PYTHON and not FOREIGN_TEXT.match(block.text)]
    found = found or [block for block in blocks if not block.language and _is_python(block.text)]
    if len(found) == 1:
        return found[0]
    if found:
        return Refusal(
            f"the reply holds {len(found)} blocks of Python and none defines ModelNew: send the whole program"
        )
    foreign = [block for block in blocks if block.language in FOREIGN or FOREIGN_TEXT.search(block.text)]
    if foreign:
        return Refusal(
            f"the reply holds the C++ or CUDA text alone (line {foreign[0].line}): send the whole Python file, with "
            "that text in its string and class ModelNew after it"
        )
    return Refusal("no block of the reply is a Python program that defines class ModelNew: send the whole file")


def _is_python(text: str) -> bool:
    """Whether a block without a language is Python that does something."""
    if check_program(text) is not None:
        return False
    return any(isinstance(node, ast.stmt) and not isinstance(node, ast.Expr) for node in tree_of(text).body)


def _syntax(error: SyntaxError | ValueError, source: str) -> str:
    if not isinstance(error, SyntaxError) or error.lineno is None:
        return printable(str(error), 200)
    lines = source.split("\n")
    shown = printable(lines[error.lineno - 1], 120) if error.lineno <= len(lines) else ""
    return f"{printable(str(error.msg), 200)} (line {error.lineno}: `{shown}`)"


def _truncated(reply: Reply, where: str) -> str:
    return f"the reply is truncated (finish reason {printable(reply.finish_reason, 40)}): it ends {where}"


def _without_edits(lines: Sequence[str]) -> list[str]:
    """The lines outside of SEARCH/REPLACE blocks; none after one that does not end."""
    kept: list[str] = []
    is_inside = False
    for line in lines:
        marker = line.strip()
        is_inside = is_inside or marker == MARKERS[0]
        if not is_inside:
            kept.append(line)
        if marker == MARKERS[2]:
            is_inside = False
    return kept
