"""A candidate's file as C++ text and flags."""

from __future__ import annotations

import pytest

from mutators.proposal import Refusal
from mutators.source import parse_source

CPP = "// naïve: µ\nvoid f() {}\n"


def test_changing_the_text_leaves_every_other_byte(lean):
    file = "# ünïcode before\n" + lean(CPP)
    changed = parse_source(file).with_cpp("void g() {}\n")
    assert changed.file == file.replace("\n" + CPP, "void g() {}\n")
    assert changed.cpp == "void g() {}\n"


def test_putting_the_same_text_back_gives_the_same_file(lean):
    kernel = parse_source(lean(CPP))
    assert kernel.with_cpp(kernel.cpp).file == kernel.file


def test_flags_are_read_and_replaced_in_place(lean):
    kernel = parse_source(lean(CPP, '["-O2", "-DX=\\"a\\""]'))
    assert kernel.flags == ("-O2", '-DX="a"')
    changed = kernel.with_flags(("-O3", '-DX="a"'))
    assert changed.file == kernel.file.replace("-O2", "-O3")


def test_the_usual_kernelbench_form_is_understood_and_openmp_gets_its_linker_flag():
    file = (
        'cpp = """\\nvoid f();\\n"""\n'
        'lib = load_inline(name="k", cpp_sources=[cpp], functions=["f"], extra_cflags=["-O2"], verbose=False)\n'
    )
    kernel = parse_source(file)
    assert kernel.cpp == "\nvoid f();\n" and kernel.flags == ("-O2",)
    changed = kernel.with_flags(("-O2", "-fopenmp"))
    assert 'extra_cflags=["-O2", "-fopenmp"], extra_ldflags=["-fopenmp"], verbose' in changed.file


@pytest.mark.parametrize(
    ("file", "words"),
    [("x = (", "not valid Python"), ("x = 1\n", "no C++ text found"), ("SOURCE = make()\n", "no C++ text found")],
)
def test_a_file_without_the_parts_is_refused_with_the_reason(file, words):
    found = parse_source(file)
    assert isinstance(found, Refusal) and words in found.reason


def test_a_file_without_a_flag_list_refuses_new_flags():
    kernel = parse_source('SOURCE = r"""void f();"""\n')
    assert "CFLAGS" in kernel.with_flags(("-O3",)).reason


def test_text_that_would_end_its_own_literal_is_refused(lean):
    assert '"""' in parse_source(lean(CPP)).with_cpp('auto s = R"""(x)""";').reason
