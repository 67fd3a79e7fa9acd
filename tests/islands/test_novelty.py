"""Fingerprints: the same program in another dress is the same, another program is not."""

from __future__ import annotations

from pathlib import Path

import pytest

import problems
from islands.novelty import fingerprint, skeleton

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
