"""SEARCH/REPLACE edits: applied exactly where they say, or refused with a reason that a model can act on."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import edit_of

from mutators.edits import MOST_CHARACTERS, MOST_EDITS, Edited, apply_edits, printable, within_regions
from mutators.proposal import Refusal

SOURCE = """import torch

SOURCE = r\"\"\"
for (int i = 0; i < n; ++i) {
    sum += x[i];
}
for (int i = 0; i < n; ++i) {
    out[i] = x[i] / sum;
}
\"\"\"


class ModelNew(torch.nn.Module):
    pass
"""
REGIONS = """a = 1
# EVOLVE-BLOCK-START
b = 2
c = 3
# EVOLVE-BLOCK-END
d = 4
// EVOLVE-BLOCK-START
e = 5
// EVOLVE-BLOCK-END
"""


def edited(source: str, *pairs: tuple[str, str], between: str = "\n") -> Edited:
    found = apply_edits(source, between.join(edit_of(*pair) for pair in pairs))
    assert isinstance(found, Edited), found
    return found


def refused(source: str, reply: str) -> str:
    found = apply_edits(source, reply)
    assert isinstance(found, Refusal), found
    return found.reason


def test_edits_replace_their_lines_and_nothing_else():
    found = edited(
        SOURCE, ("    out[i] = x[i] / sum;", "    out[i] = x[i] * inverse;"), ("    pass", "    a = 1\n    b = 2")
    )
    wanted = SOURCE.replace("x[i] / sum", "x[i] * inverse").replace("    pass", "    a = 1\n    b = 2")
    assert found.source == wanted
    assert [(edit.line, edit.search) for edit in found.edits] == [(8, "    out[i] = x[i] / sum;"), (14, "    pass")]
    assert found.summary == "2 edits: line 8 -> 1, line 14 -> 2 lines"


def test_prose_and_fences_around_edits_do_not_matter():
    reply = f"I widen it.\n\n```diff\n{edit_of('    pass', '    a = 1')}```\n\nDone: === it is faster >>> now."
    assert apply_edits(SOURCE, reply).source == SOURCE.replace("    pass", "    a = 1")


def test_edits_are_found_in_the_program_as_shown_whatever_their_order():
    found = edited("a\nb\nc\n", ("c", "a"), ("a", "b\nb"))
    assert found.source == "b\nb\nb\na\n"


def test_an_empty_replacement_deletes_lines():
    assert edited("a\nb\nc\n", ("b", "")).source == "a\nc\n"


@pytest.mark.parametrize("source", ["a\r\nb\r\nc\r\n", "a\r\nb\r\nc", "a\nb\nc", "b"])
@pytest.mark.parametrize("reply_ending", ["\n", "\r\n"])
def test_line_endings_of_the_source_are_kept(source: str, reply_ending: str):
    reply = edit_of("b", "x\ny").replace("\n", reply_ending)
    ending = "\r\n" if "\r" in source else "\n"
    assert apply_edits(source, reply).source == source.replace("b", f"x{ending}y")


def test_white_space_at_the_ends_of_lines_is_forgiven():
    assert edited("a  \nb\t\nc\n", ("a\nb", "x")).source == "x\nc\n"


def test_an_exact_match_wins_over_a_forgiven_one():
    assert edited("a \nb\na\nb\n", ("a\nb", "x")).source == "a \nb\nx\n"


def test_indentation_is_not_forgiven_and_the_real_lines_are_shown():
    reason = refused(SOURCE, edit_of("sum += x[i];\n}", "y"))
    assert "0 places" in reason and "differ only in white space" in reason and "5:     sum += x[i];" in reason


def test_text_that_stands_nowhere_is_refused_with_the_nearest_lines():
    reason = refused(SOURCE, edit_of("    out[i] = x[i] / total;", "y"))
    assert reason.startswith(
        "edit 1: SEARCH text stands in 0 places, must be exactly 1; it begins `out[i] = x[i] / total;`"
    )
    assert "line 8" in reason and "8:     out[i] = x[i] / sum;" in reason


def test_the_nearest_lines_are_aligned_by_those_that_do_stand():
    reason = refused(
        SOURCE, edit_of("for (int i = 0; i < n; ++i) {\n    out[i] = 2 * x[i];\n    out[i] = x[i] / sum;", "y")
    )
    assert "lines 6-8" in reason and "8:     out[i] = x[i] / sum;" in reason


def test_text_that_stands_twice_is_refused_with_both_lines():
    reason = refused(SOURCE, edit_of("for (int i = 0; i < n; ++i) {", "y"))
    assert "several places, at lines 4, 7, must be exactly 1" in reason


def test_text_that_repeats_itself_with_an_overlap_is_ambiguous():
    assert "lines 1, 2" in refused("a\na\na\n", edit_of("a\na", "b"))


def test_a_line_is_matched_whole():
    assert "0 places" in refused("value = 10\n", edit_of("value = 1", "value = 2"))


def test_overlapping_edits_are_refused():
    reason = refused("a\nb\nc\n", edit_of("a\nb", "x") + edit_of("b\nc", "y"))
    assert reason == "edits 1 and 2 overlap: one changes lines 1-2, the other lines 2-3. Make them one edit"


def test_one_bad_edit_refuses_all_and_every_fault_is_told():
    reason = refused(SOURCE, edit_of("    pass", "    a = 1") + edit_of("nowhere", "x") + edit_of("}", "y"))
    assert "edit 2: SEARCH text stands in 0 places" in reason and "edit 3: SEARCH text stands in several" in reason


@pytest.mark.parametrize(("search", "replacement"), [("b", "b"), ("b", "b  ")])
def test_an_edit_that_changes_nothing_is_refused(search: str, replacement: str):
    assert "it changes nothing" in refused("a\nb \n", edit_of(search, replacement))


def test_an_empty_search_is_refused():
    assert "SEARCH text is empty" in refused("a\n\nb\n", "<<<<<<< SEARCH\n\n=======\nx\n>>>>>>> REPLACE\n")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("no code here", "no edit found"),
        ("", "no edit found"),
        ("<<<<<< SEARCH\na\n======\nb\n>>>>>> REPLACE", "line 1 looks like one but is not"),
        ("<<<<<<< SEARCH\na\n=======\nb\n", "begins at line 1 of the reply has no `>>>>>>> REPLACE`"),
        ("<<<<<<< SEARCH\na\n", "has no `=======`"),
        (edit_of("a", "b") + "=======\n", "line 6 of the reply is `=======` where `<<<<<<< SEARCH` was expected"),
        ("<<<<<<< SEARCH\na\n=======\nb\n=======\nc\n>>>>>>> REPLACE", "line 5 of the reply is `=======`"),
        ("<<<<<<< SEARCH\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE", "line 2 of the reply"),
        (edit_of("a", "<<<<<<< HEAD\nb"), "looks like a marker"),
        (edit_of("```python\na\n```", "b"), "Leave out the fence"),
        (edit_of("a", "b\n# EVOLVE-BLOCK-END"), "EVOLVE-BLOCK marker"),
        ("x" * (MOST_CHARACTERS + 1), "at most 1,000,000 are read"),
        (edit_of("a", "b") * (MOST_EDITS + 1), "at most 64 are taken"),
    ],
)
def test_wrong_replies_are_refused_with_the_reason(reply: str, said: str):
    assert said in refused("a\n", reply)


def test_a_source_that_is_too_long_is_not_edited():
    assert "at most 1,000,000 are edited" in refused("a\n" + "b" * MOST_CHARACTERS, edit_of("a", "c"))


def test_a_banner_of_equal_signs_inside_code_is_no_marker():
    assert edited("a\n", ("a", "# =======\n========\nb")).source == "# =======\n========\nb\n"


def test_edits_inside_regions_are_made():
    assert edited(REGIONS, ("b = 2\nc = 3", "b = 7"), ("e = 5", "e = 6")).source == REGIONS.replace(
        "b = 2\nc = 3", "b = 7"
    ).replace("e = 5", "e = 6")


@pytest.mark.parametrize(
    "search", ["a = 1", "d = 4", "c = 3\n# EVOLVE-BLOCK-END", "a = 1\n# EVOLVE-BLOCK-START\nb = 2"]
)
def test_edits_outside_regions_are_refused(search: str):
    reason = refused(REGIONS, edit_of(search, "x = 1"))
    assert "outside what may be changed (lines 3-4, line 8)" in reason


@pytest.mark.parametrize("marks", ["START", "END", "START\nx\n# EVOLVE-BLOCK-START\nb\n# EVOLVE-BLOCK-END"])
def test_regions_that_are_not_well_formed_allow_no_edit(marks: str):
    assert "nested or unmatched" in refused(f"a\n# EVOLVE-BLOCK-{marks}\nc\n", edit_of("c", "d"))


def test_a_whole_program_gets_its_parents_text_outside_regions_back():
    rewritten = REGIONS.replace("b = 2", "b = 9").replace("a = 1", "a = 0")
    assert within_regions(REGIONS, rewritten) == REGIONS.replace("b = 2", "b = 9")
    assert within_regions("a\n", "b\n") == "b\n"


@pytest.mark.parametrize("program", ["b = 9\n", REGIONS + "# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-END\n"])
def test_a_whole_program_may_not_change_the_regions(program: str):
    assert isinstance(within_regions(REGIONS, program), Refusal)
    assert isinstance(within_regions("a\n", "# EVOLVE-BLOCK-START\na\n# EVOLVE-BLOCK-END\n"), Refusal)


def test_reasons_hold_no_escape_sequences_of_candidate_or_model():
    reason = refused("\x1b[31mvalue = one\x07\n", edit_of("\x1b]0;title\x07value = on", "x"))
    assert "\x1b" not in reason and "\x07" not in reason and "value = on" in reason
    assert printable("a\x1b[1mb\nc\u202e" + "d" * 99, 20).startswith("ab c") and "\u202e" not in printable(
        "\u202ea", 20
    )


PIECES = st.sampled_from(
    ["<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "a", "b ", "  c", "", "\r", "# EVOLVE-BLOCK-START", "\ud800", "\0",
     "# EVOLVE-BLOCK-END", "```", "<<<<<<<", "\x0c", "\u2028"]
)  # fmt: skip
TEXTS = st.one_of(st.text(), st.lists(PIECES).map("\n".join), st.lists(PIECES).map("\r\n".join))


@settings(max_examples=400, deadline=None)
@given(TEXTS, TEXTS)
def test_no_text_whatever_raises(source: str, reply: str):
    assert isinstance(apply_edits(source, reply), Edited | Refusal)


LINES = st.lists(st.text("ab {}\t", max_size=6), min_size=1, max_size=12)


@settings(max_examples=300, deadline=None)
@given(LINES, st.data())
def test_what_stands_once_is_replaced_and_what_does_not_is_refused(lines: list[str], data: st.DataObject):
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    search = "\n".join(lines[start:end]).rstrip()
    length = search.count("\n") + 1
    wanted = [line.rstrip() for line in search.split("\n")]
    bare = [line.rstrip() for line in lines]
    count = sum(bare[at : at + length] == wanted for at in range(len(lines)))
    found = apply_edits("\n".join(lines), edit_of(search, "new"))
    if search and count == 1:
        assert isinstance(found, Edited)
        assert found.source == "\n".join([*lines[:start], "new", *lines[start + length :]])
    elif not search:
        assert isinstance(found, Refusal)


SIZE = 300_000
HEAVY = {
    "one line": ("x" * SIZE, edit_of("x" * (SIZE // 2) + "y", "z")),
    "line of spaces": ("a\n", " " * SIZE),
    "markers": ("a\n", "=======\n" * (SIZE // 8)),
    "openings": ("a\n", "<<<<<<< SEARCH\n" * (SIZE // 15)),
    "many edits": ("a\n", edit_of("a", "b") * (SIZE // 45)),
    "long misses": ("\n" * SIZE, "".join(edit_of("\n" * 4_000 + f"{number}", "a") for number in range(60))),
    "equal lines": ("ab\n" * (SIZE // 3), edit_of("ab\n" * (SIZE // 4) + "c", "d")),
    "alike lines": ("".join(f"{number:0128b}\n" for number in range(SIZE // 130)), edit_of("01" * 64, "a") * 4),
    "5 MB": ("a\n", "<<<<<<< SEARCH\n" + "x" * 5_000_000),
    "5 MB source": ("x" * 5_000_000, edit_of("a", "b")),
}


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_texts_are_refused_in_time_that_grows_with_their_length(name: str):
    source, reply = HEAVY[name]
    apply_edits("a\n", edit_of("b", "c"))  # imports
    started_s = time.process_time()
    for _ in range(20):
        (source + reply).count("\n" + "q" * 50)
        (source + reply).split("\n")
    scan_s = (time.process_time() - started_s) / 20
    started_s = time.process_time()
    assert isinstance(apply_edits(source, reply), Refusal)
    assert time.process_time() - started_s < 0.5 + 100 * scan_s
