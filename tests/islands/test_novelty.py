"""Fingerprints: the same program in another dress is the same, another program is not."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import pytest

import problems
from islands.novelty import exact, fingerprint, host, skeleton

LEAN = '''"""A seed."""
import ctypes
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]  # flags

SOURCE = r"""
#include <cmath>
#define TWICE(x) ((x) + (x))
// a comment
extern "C" void f(const float* x, float* out, int64_t n) {
    constexpr int TILE = 8;  // tune: 8 16
    for (int64_t i = 0; i < n; ++i) {  /* inner */
        out[i] = x[i] * 1.5e-3f - 'a' + TWICE(x[i]);
    }
}
"""

library = ctypes.CDLL(load_inline("f", SOURCE, functions=None, extra_cflags=CFLAGS, is_python_module=False))


class ModelNew:
    """What it does."""

    def forward(self, x):
        return x + 1
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A seed.", "Another description."),
        ("# flags", "# other words"),
        ("// a comment\n", ""),
        ("/* inner */", ""),
        ("for (int64_t i = 0; i < n; ++i) {", "for(int64_t i=0;i<n;++i)\n    {"),
        ("What it does.", "What it did."),
        ("import ctypes\n", "import ctypes\n\n\n# more\n"),
        ("return x + 1", "return  x+1"),
        ("// tune: 8 16", "// tune:  8   16"),
    ],
)
def test_comments_docstrings_and_spacing_do_not_matter(old, new):
    assert old in LEAN and old != new
    assert fingerprint(LEAN.replace(old, new)) == fingerprint(LEAN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-O2", "-O3"),
        ("TILE = 8;", "TILE = 16;"),
        ("tune: 8 16", "tune: 8 16 32"),
        ("1.5e-3f", "1.5e-4f"),
        ("'a'", "' a'"),
        ("int64_t n", "int64_tn"),
        ("++i", "+ +i"),
        ("return x + 1", "return x - 1"),
        ("#define TWICE(x) ((x) + (x))\n", "#define TWICE(x) ((x)\n + (x))\n"),
        ("        return x + 1", "        pass\n    return x + 1"),
        ("out[i] = x[i]", "//out[i] = x[i]"),
    ],
)
def test_every_change_to_the_program_matters(old, new):
    assert old in LEAN
    assert fingerprint(LEAN.replace(old, new)) != fingerprint(LEAN)


def test_a_comment_sign_inside_a_string_begins_no_comment():
    first, second = 'x = "a // b"\ny = "# c"\n', 'x = "a // B"\ny = "# c"\n'
    assert fingerprint(first) != fingerprint(second)
    cpp = 'auto u = "http://{}"; int x;'
    assert fingerprint(cpp) != fingerprint(cpp.replace("int x", "int y"))
    raw = 'R"(a // ) b)" + x {'
    assert fingerprint(raw) != fingerprint(raw.replace("+ x", "+ y"))


@pytest.mark.parametrize(
    "text", ["", "(", "def f(:\n", "  x\n y\n", "\ud800", "\x00", '"""', "int main() { return 0; }", "'"]
)
def test_text_that_is_no_python_has_a_fingerprint_too(text):
    assert len(fingerprint(text)) == 64
    assert fingerprint(text) != fingerprint(text + " more;")


def test_no_two_bundled_seeds_share_a_fingerprint():
    folder = Path(problems.__file__).parent / "bundled" / "seeds"
    sources = [file.read_text() for file in sorted(folder.glob("*.py"))]
    assert len(sources) > 10
    assert len({fingerprint(source) for source in sources}) == len(sources)


def test_a_skeleton_ignores_the_values_of_tunables_only():
    assert skeleton(LEAN) == skeleton(LEAN.replace("TILE = 8;", "TILE = 16;"))
    assert skeleton(LEAN) != skeleton(LEAN.replace("TILE = 8;", "TALL = 8;"))
    assert skeleton(LEAN) != skeleton(LEAN.replace("int64_t i = 0;", "int64_t i = 1;"))


def cpp(text: str, **changes: str) -> str:
    """A module that compiles `text`."""
    call = changes.get("call", 'load_inline("f", SOURCE, functions=None)')
    start = changes.get("start", "from torch.utils.cpp_extension import load_inline\n")
    return f"{start}SOURCE = {changes.get('prefix', 'r')}'''{text}'''\nlibrary = {call}\n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int a; // c \\\nint b;", "int a; // d\nint b;"),
        ("int a; // c \\  \nint b;", "int a;\nint b;"),
        ("#define F(x) (x)\n", "#define F (x) (x)\n"),
        ("#define T(x) #x\nauto s = T(a+b);", "#define T(x) #x\nauto s = T(a + b);"),
        ("#define C(x) a ## x\nint C(1 2);", "#define C(x) a ## x\nint C( 1 2);"),
        ("#include <a//b>\n", "#include <a//c>\n"),
        ('auto s = u8R"(\n// one)";', 'auto s = u8R"(\n// two)";'),
        ('auto s = R"x(a )" // one)x";', 'auto s = R"x(a )" // two)x";'),
        ('auto s = L"a";', 'auto s = L "a";'),
        ('auto s = "a"_s;', 'auto s = "a" _s;'),
        ("int in\\\nt x;", "int in t x;"),
        ("auto a = x <=> y;", "auto a = x <= > y;"),
        ("k<<<1, 2>>>();", "k<< <1, 2>>>();"),
        ("int line = __LINE__;", "\nint line = __LINE__;"),
        ("int a = 1'000;", "int a = 1 '000;"),
        ("int é = 1;", "int\u00a0é = 1;"),
        ("int a; /* no end", "int a; /* no  end"),
        ("int a = '\"'; // \" \nint b;", "int a = '\"'; // ' \n"),
        ("%:define A 1\n", "%:define A  1\n"),
        ("constexpr int T = 8;  // tune: 8 16\n", "constexpr int T = 8;  // tune: 8 32\n"),
        ("#define T 8  // tune: 8 16\n", "#define T 16  // tune: 8 16\n"),
    ],
)
def test_cpp_that_may_behave_differently_differs(one, other):
    assert fingerprint(cpp(one)) != fingerprint(cpp(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("#define A 1 // old\n", "#define A 1 /* new */\n"),
        ("#include <cmath>  // for exp\n", "#include <cmath>\n"),
        ("#define LONG(a) \\\n    (a)\n", "#define LONG(a)     (a)\n"),
        ("void f() {\n    int a;\n}", "void f() { int a; }"),
        ("int a; // EVOLVE-BLOCK-START\n", "int a;\n"),
        ("int a = b\t+ c;", "int a=b+c;"),
        ("asm(\"// kept\"); // dropped", "asm(\"// kept\");"),
        ("k<<<1, 2>>>(a);", "k <<<1,2>>> (a);"),
    ],
)  # fmt: skip
def test_cpp_in_another_dress_is_the_same(one, other):
    assert fingerprint(cpp(one)) == fingerprint(cpp(other))


def test_escapes_of_a_python_string_are_read_before_its_cpp():
    one, other = cpp("// c\\nint a;\n", prefix=""), cpp("// c\\nint b;\n", prefix="")
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(cpp("// c\\nint a;\n")) == fingerprint(cpp("// d\\nint b;\n")), "a raw string: all one comment"


@pytest.mark.parametrize(
    "changes",
    [
        {"call": "load_inline('f', SOURCE.replace('// A', '#pragma unroll'))"},
        {"call": "load_inline('f', HEAD + SOURCE)"},
        {"call": "load_inline('f', 'int f();', functions=[SOURCE])"},
        {"call": "load_inline('f', 'int f();', None, extra_cflags=[SOURCE])"},
        {"call": "load_inline(*['f', SOURCE])"},
        {"call": "load_inline('f', SOURCE); print(len(SOURCE))"},
        {"call": "other('f', SOURCE)"},
        {"prefix": "f"},
        {"start": "from torch.utils.cpp_extension import load_inline, load_inline as f\n"},
        {"start": "def load_inline(name, text): return len(text)\n"},
        {"start": "from mine import f as load_inline\n"},
        {"start": "load_inline = len\n"},
        {"start": "import inspect\n"},
    ],
)
def test_a_string_that_is_not_only_compiled_counts_as_it_stands(changes):
    assert fingerprint(cpp("int a; // A\n", **changes)) != fingerprint(cpp("int a; // B\n", **changes))


@pytest.mark.parametrize(
    "call",
    [
        "load_inline(name='f', cpp_sources=SOURCE)",
        "load_inline('f', [SOURCE], functions=['f'])",
        "cpp_extension.load_inline('f', 'int f();', SOURCE)",
        "load_inline('f', cpp_sources=['int f();'], cuda_sources=[SOURCE])",
    ],
)
def test_every_way_to_hand_over_a_source_is_known(call):
    assert fingerprint(cpp("int a; // A\n", call=call)) == fingerprint(cpp("int a; // B\n", call=call))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"""Old."""\nx = f(__doc__)\n', '"""New."""\nx = f(__doc__)\n'),
        ("# coding: latin-1\nx = 'é'\n", "# coding: utf-8\nx = 'é'\n"),
        ("x = exec('1')\n# a", "x = exec('1')\n# b"),
        ("f'{run()}'\n", "f'{walk()}'\n"),
        ("if a:\n    b()\n    c()\n", "if a:\n    b()\nc()\n"),
        ("x = 1\n", "x = 1.0\n"),
        ("x = 0.0\n", "x = -0.0\n"),
        ("x = True\n", "x = 1\n"),
        ("x = 'a b'\n", "x = 'a  b'\n"),
        ("x = b'a'\n", "x = 'a'\n"),
        ("def f(a, b): pass\n", "def f(a, *, b): pass\n"),
        ("BLOCK = 64  # tune: 32 64\n", "BLOCK = 64  # tune: 64 128\n"),
        ("x = f'{a = }'\n", "x = f'{a=}'\n"),
        ("x = " + "9" * 5000, "x = " + "9" * 4999 + "8"),
        ("x = " + "(" * 150 + "1" + ")" * 150, "x = " + "(" * 150 + "2" + ")" * 150),
        ("x = " + "-" * 3000 + "1", "x = " + "-" * 3000 + "2"),
        ('const char* s =\n  "one"\n  "two";', 'const char* s =\n  "two";'),
        ("#define N 1\nint x = N;", "#define N 2\nint x = N;"),
    ],
)
def test_python_that_may_behave_differently_differs(one, other):
    assert fingerprint(one) != fingerprint(other)
    assert host(one) != host(other)


def test_quotes_brackets_and_indentation_of_python_do_not_matter():
    assert fingerprint("if (a):\n    f('x')\n") == fingerprint('if a:\n  f("x")  # c\n')
    assert fingerprint("BLOCK = 64  # tune: 32 64\n") == fingerprint("BLOCK=64 #  tune:  32 64\n")


def test_a_host_is_what_stands_around_the_compiled_code():
    assert host(cpp("int a;")) == host(cpp("int b;"))
    assert host(cpp("int a;", call="load_inline('f', SOURCE, extra_cflags=['-O2'])")) != host(
        cpp("int a;", call="load_inline('f', SOURCE, extra_cflags=['-O3'])")
    )
    assert host(cpp("int a;", call="other(SOURCE)")) != host(cpp("int b;", call="other(SOURCE)"))


KERNEL = """
import triton
import triton.language as tl

@triton.autotune(configs=[A, B], key=["n"])
@triton.jit
def add(x, n, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(x + place, 1)

def run(x):
    add[(1,)](x, 8, BLOCK=32)
"""


def test_a_triton_kernels_body_is_no_part_of_the_host_and_what_surrounds_it_is():
    assert host(KERNEL) == host(KERNEL.replace("place", "where"))
    for old, new in (("[A, B]", "[B, A]"), ("8, BLOCK", "9, BLOCK"), ("(x, n, B", "(n, x, B"), ("@triton.jit", "@jit")):
        assert host(KERNEL) != host(KERNEL.replace(old, new))


@pytest.mark.parametrize("doubt", ["triton = other\n", "def run(x): return add.fn(x)\n", "print(add.__code__)\n"])
def test_where_a_kernel_may_run_as_python_its_body_is_part_of_the_host(doubt):
    assert host(KERNEL + doubt) != host(KERNEL.replace("place", "where") + doubt)


def test_exact_hashes_are_those_of_the_bytes():
    assert exact("x") == hashlib.sha256(b"x").hexdigest()
    assert len(exact("\ud800")) == 64


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("BLOCK = 64  # tune: 32 64\n", "BLOCK = 32  # tune: 32 64\n"),
        ("#define BLOCK 64  // tune: 32 64\n", "#define BLOCK 32  // tune: 32 64\n"),
    ],
)
def test_skeletons_know_pythons_tunables_and_macros_too(one, other):
    assert skeleton(one) == skeleton(other)
    assert skeleton(one) != skeleton(other.replace("BLOCK", "TILE"))
    assert skeleton("x == 1  # y\n") != skeleton("x == 2  # y\n")


@pytest.mark.parametrize(
    "piece",
    ['R"(', 'R"x(a', "/*", '"', "'", "#", "=;", "// tune:", "\\ ", "= # tune:", "a.", "(", "-", "[", "f'{", "9"],
)
def test_long_hostile_text_takes_no_longer_than_its_length_asks_for(piece):
    """Ten times the text takes about ten times as long: a hundred times would show a search that starts again."""

    def seconds(length: int) -> float:
        text = piece * (length // len(piece))
        started = time.process_time()
        for one in (text, cpp(text)):
            assert len({fingerprint(one), host(one), skeleton(one)}) >= 1
        return time.process_time() - started

    seconds(1_000)
    assert seconds(40_000) < 40 * max(seconds(4_000), 0.004)


def test_a_source_of_megabytes_counts_as_it_stands():
    text = "x = 1\n" * 100_000
    assert fingerprint(text) != fingerprint(text + "# c\n")
