"""Tokens of C++: the quick reading gives what the careful one gives."""

from __future__ import annotations

import ast
from random import Random

from islands.cpp_tokens import DOUBTFUL_TEXT, SPLICE, cpp_tokens, exact_tokens
from islands.trees import nodes_of, tree_of

PIECES = (
    *("/*", "*/", "//", " tune: 1 2", "\n", " ", "\t", "#", "##", "include <a>", "define A", "\\", '"', "'", 'R"('),
    *(')"', "u8", "L", "U", "a", "b1", "1.5e-3", "1'000", ".5", "...", "<=>", "->*", "%:", "<:", "\u00e9", "\u00b5"),
    *("$", "_", "(", ")", "\x1c", "?", "@", "x\n", "#define X 1\n", "/* c */", "// c\n", '"s"', "'c'", "int a;\n"),
)


def test_quick_tokens_are_those_of_the_careful_reading_on_any_text():
    random = Random(0)
    texts = ["".join(random.choices(PIECES, k=random.randint(1, 12))) for _ in range(20_000)]
    texts = [text for text in texts if not any(word in text for word in (*DOUBTFUL_TEXT, 'R"'))]
    assert sum(cpp_tokens(text) is not None for text in texts) > 2_000
    assert all(cpp_tokens(text) == exact_tokens(SPLICE.sub("", text)) for text in texts)


def test_directives_keep_their_ends_and_other_lines_do_not():
    assert cpp_tokens("int a;\n#define A (1)\nint b;\n") == [
        *("int", "a", ";"),
        *("#", "define", " ", "A", " ", "(", "1", ")", "\n"),
        *("int", "b", ";"),
    ]


def test_a_tree_is_parsed_once_and_its_nodes_are_all_there():
    source = "def f(a, *b):\n    return [a.x + 1 for a in b if a] or {1: 'x'}\n"
    assert tree_of(source) is tree_of(source)
    walked = [node for node in ast.walk(tree_of(source)) if not isinstance(node, ast.expr_context)]
    assert nodes_of(tree_of(source)) == walked
