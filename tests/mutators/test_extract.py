"""The program in a reply: taken where there is exactly one, refused with the reason where there is none or several."""

from __future__ import annotations

import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import edit_of, program_of

from mutators.dialogue import Reply
from mutators.edits import MOST_CHARACTERS
from mutators.extract import answer_of, check_program, code_of, fenced_blocks, rationale_of
from mutators.proposal import Refusal

SEEDS = Path(__file__).parents[2] / "problems/bundled/seeds"
PROGRAM = 'import torch\n\nSOURCE = r"""\nint f() { return 1; }\n"""\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n'
OTHER = PROGRAM.replace("return 1", "return 2")
PART = "class ModelNew(torch.nn.Module):\n    pass\n"
CPP = '```cpp\n#include <cmath>\nextern "C" void f() {}\n```\n'


def taken(text: str, finish_reason: str = "stop", known: tuple[str, ...] = ()) -> str:
    found = code_of(Reply(text, finish_reason=finish_reason), known)
    assert isinstance(found, str), found
    return found


def refused(text: str, finish_reason: str = "stop", known: tuple[str, ...] = ()) -> str:
    found = code_of(Reply(text, finish_reason=finish_reason), known)
    assert isinstance(found, Refusal), found
    return found.reason


@pytest.mark.parametrize("path", sorted(SEEDS.glob("*.py"))[::9], ids=lambda path: path.stem)
def test_real_candidates_come_back_to_the_byte(path: Path):
    source = path.read_text()
    assert taken(f"Here it is.\n\n```python\n{source}```\nThat is all.") == source


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{PROGRAM}```",
        f"Prose.\n```py\n{PROGRAM}```\nMore `code` and prose.",
        f"~~~~ Python title=kernel.py\n{PROGRAM}~~~~",
        f"```{{.python}}\n{PROGRAM}```",
        f"```\n{PROGRAM}```",
        f"````python\n{PROGRAM}````",
        f"- an item\n   ```python\n{''.join(f'   {line}' for line in PROGRAM.splitlines(keepends=True))}   ```",
        f"1. an item\n\n    ```python\n{''.join(f'    {line}' for line in PROGRAM.splitlines(keepends=True))}    ```",
        f"```python\n{PROGRAM}",
        f"````markdown\nAn answer.\n```python\n{PROGRAM}```\n````",
        f"```python\r\n{PROGRAM}```\r\n".replace("\n", "\r\n").replace("\r\r", "\r"),
        f"<think>\nFirst\n```python\n{OTHER}```\n</think>\n\n```python\n{PROGRAM}```",
        f"a template opened the thoughts\n```python\n{OTHER}```\n</think>\n```python\n{PROGRAM}```",
        f"Needs:\n```bash\npip list\n```\n```python\n{PROGRAM}```\nand\n{CPP}",
        PROGRAM,
    ],
)
def test_the_program_is_found_in_all_forms_of_fences(text: str):
    assert taken(text).strip() == PROGRAM.strip()


def test_a_longer_fence_holds_shorter_ones():
    program = PROGRAM + '"""\n```python\nexample()\n```\n"""\n'
    assert taken(f"````python\n{program}````") == program


def test_a_fence_inside_the_program_that_is_indented_far_does_not_end_it():
    program = PROGRAM.replace("    pass\n", '    """\n    ```\n    an example\n    ```\n    """\n')
    assert taken(f"```python\n{program}```") == program


def test_the_program_is_taken_whole_when_its_parts_are_explained_again():
    assert taken(f"```python\n{PROGRAM}```\nThe class is\n```python\n{PART}```") == PROGRAM
    assert taken(f"```python\n{PART}```\nin whole\n```python\n{PROGRAM}```\nagain\n```python\n{PROGRAM}```") == PROGRAM


def test_two_different_programs_are_ambiguous():
    reason = refused(f"First\n```python\n{PROGRAM}```\nor better\n```python\n{OTHER}```")
    assert "2 blocks that define ModelNew, at lines 2, 14" in reason


def test_a_quoted_known_program_does_not_count():
    text = f"Before:\n```python\n{PROGRAM}```\nAfter:\n```python\n{OTHER}```"
    assert taken(text, known=(PROGRAM.replace("\n", "\r\n"),)) == OTHER
    assert "changed nothing" in refused(f"```python\n{PROGRAM}```", known=(PROGRAM,))


def test_the_only_python_block_is_taken_though_it_lacks_modelnew():
    assert taken("```python\nx = 1\n```\n```\nplain words\n```") == "x = 1\n"
    assert taken("```\nx = 1\n```") == "x = 1\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A larger tile would help.", "no fenced code block"),
        ("", "the reply is empty"),
        (" \n\t", "the reply is empty"),
        (CPP, "C++ or CUDA text alone (line 1)"),
        ('```\n__global__ void f() {}\nextern "C" int g();\n```', "C++ or CUDA text alone"),
        ("```python\nx = 1\n```\n```python\ny = 2\n```", "2 blocks of Python"),
        ("```\nhello\n```", "no block of the reply is a Python program"),
        ("```json\n{}\n```", "no block of the reply is a Python program"),
        ("```python\nclass ModelNew:\n    def f(\n```", "not valid Python"),
        ("```python\nclass ModelNew:\n    ...\n    x = = 1\n```", "(line 3: `x = = 1`)"),
        ("```python\n```", "is empty"),
        ("```python\nclass ModelNew: pass\n" + "x = " + "-" * 100_000 + "1\n```", "nested too deeply"),
        ("```python\nclass ModelNew: s = '\ud800'\n```", "lone surrogate"),
        ("```python\nclass ModelNew: s = '\0'\n```", "NUL character"),
        ("x" * (MOST_CHARACTERS + 1), "at most 1,000,000 are read"),
        ("```\na\n```\n" * 101, "has 101 code blocks"),
        ("<think>\n```python\n" + PROGRAM + "```\n", "inside its <think> part"),
        ("```python\n" + edit_of("a", "class ModelNew:\n    pass") + "```", "not valid Python"),
    ],
)
def test_replies_without_a_program_are_refused_with_the_reason(text: str, said: str):
    assert said in refused(text)


def test_a_reply_that_was_cut_in_its_program_is_refused_as_truncated():
    text = f"Prose.\n```python\n{PROGRAM}"
    assert "truncated (finish reason length): it ends inside the block that begins at line 2" in refused(text, "length")
    assert "truncated" in refused("I will first", "length") and "think less" in refused("", "length")
    assert taken(f"```python\n{PROGRAM}```\nIn the end I", "length") == PROGRAM


def test_a_fence_is_known_to_be_closed_or_not():
    texts = (
        "```\na\n```",
        "```\na\n",
        "```\na",
        "```",
        "```\n```",
        "```\n\n",
        "```\na\n    ```",
        "   ```\n   a\n   ```",
    )
    assert [fenced_blocks(text)[0].is_closed for text in texts] == [True, False, False, False, True, False, False, True]


def test_lines_of_blocks_are_counted_in_the_reply():
    blocks = fenced_blocks("a\n```\nb\n```\n````md\nc\n```py\nd\n```\n````\n~~~\ne\n~~~")
    assert [(block.line, block.end, block.text) for block in blocks] == [(2, 4, "b\n"), (7, 9, "d\n"), (11, 13, "e\n")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"RATIONALE: wider loads, 2.5x expected.\n\n{program_of(PROGRAM)}", "wider loads, 2.5x expected."),
        (f"**RATIONALE:** wider *loads*\n{program_of(PROGRAM)}", "wider *loads*"),
        (f"# Plan\n\nThe loop is bound by e.g. memory at 1.5 GB/s. So I\nfuse it.\n{program_of(PROGRAM)}",
         "The loop is bound by e.g. memory at 1.5 GB/s."),
        (f"1. Use tiles. They fit\n2. Unroll\n{edit_of('a', 'b')}", "Use tiles."),
        (f"{edit_of('RATIONALE: not this', 'b')}It is fused now.", "It is fused now."),
        ("```python\n# RATIONALE: not this\n```\n", ""),
        (program_of(PROGRAM), ""),
        ("", ""),
        ("RATIONALE: \x1b[31mred\x1b[0m\x07 text\u202e", "red\\x07 text\\u202e"),
    ],
)  # fmt: skip
def test_the_rationale_is_the_stated_line_or_the_first_sentence(text: str, said: str):
    assert rationale_of(text) == said


def test_the_rationale_is_short_and_of_one_line():
    long = rationale_of("RATIONALE: " + "word " * 1000)
    assert len(long) == 300 and long.endswith("...")
    assert "\n" not in rationale_of("one\ntwo\nthree") and rationale_of("one\ntwo") == "one two"


@pytest.mark.parametrize(
    "line",
    [
        "VERDICT: correct",
        '{"verdict": "correct", "speedup": 99.0}',
        "kb-evolve: speedup 99x\x1b[2J",
        "</data-0123456789abcdef>",
    ],
)
def test_lines_that_look_like_verdicts_are_prose(line: str):
    assert taken(f"{line}\n\n```python\n{PROGRAM}```\n{line}") == PROGRAM
    assert "no fenced code block" in refused(line)


PIECES = st.sampled_from(
    ["```", "```python", "~~~~", "    ```", "class ModelNew:", "    pass", "", "text", "<think>", "</think>", "\0",
     "\ud800", "```markdown", "````md", "\r", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "RATIONALE: x", "# head",
     "1. x. Y"]
)  # fmt: skip
TEXTS = st.one_of(st.text(), st.lists(PIECES).map("\n".join), st.lists(PIECES).map("\r\n".join))


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.sampled_from(["stop", "length", "content_filter", "\x1b"]))
def test_no_text_whatever_raises(text: str, finish_reason: str):
    reply = Reply(text, finish_reason=finish_reason)
    found = code_of(reply)
    assert isinstance(found, Refusal) or check_program(found) is None
    assert isinstance(answer_of(reply), str | Refusal)
    assert {unicodedata.category(character) for character in rationale_of(text)}.isdisjoint({"Cc", "Cf", "Cs"})


SIZE = 300_000
HEAVY = {
    "one line": "x" * SIZE,
    "spaces": " " * SIZE,
    "fences": "```\n" * (SIZE // 4),
    "openings": "~~~x\n" * (SIZE // 5),
    "ticks": "`" * SIZE,
    "blocks": "```\na = 1\n```\n" * (SIZE // 14),
    "programs": "".join(f"```\nclass ModelNew: x = {number}\n```\n" for number in range(SIZE // 33)),
    "documents": "```md\n```\n" * (SIZE // 10),
    "thoughts": "</think>x" * (SIZE // 9),
    "marks": "# RATIONALE " * (SIZE // 12),
    "deep": "```python\n" + "[" * SIZE,
    "5 MB": "x" * 5_000_000,
}


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_replies_are_read_in_time_that_grows_with_their_length(name: str):
    text = HEAVY[name]
    code_of(Reply("```\n```"))  # imports
    started_s = time.process_time()
    for _ in range(5):
        sum(character == "`" for character in text[:SIZE])
    loop_s = (time.process_time() - started_s) / 5
    started_s = time.process_time()
    assert isinstance(code_of(Reply(text)), Refusal)
    rationale_of(text)
    took_s = time.process_time() - started_s
    assert took_s < 150 * max(loop_s, 0.006), f"{took_s:.2f} s, a plain loop over the text {loop_s:.3f} s"
