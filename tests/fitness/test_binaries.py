"""What a build compiled, as one hash: the code counts, and nothing of its names, comments, place or time."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fitness.backends import cuda
from fitness.binaries import binary_sha256, code_sha256
from fitness.builder import Builder
from fitness.children import Zygote
from fitness.evaluation import Job, Verdict

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return x + 1
def get_inputs(): return [torch.rand(1024)]
def get_init_inputs(): return []
"""
CPP = '''
import ctypes, torch
from torch.utils.cpp_extension import load_inline
SOURCE = r"""
#include <cmath>
// a comment
static float helper(float value) { return value + 1; }
extern "C" void bump(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = helper(x[i]); }
extern "C" void twice(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = 2 * x[i]; }
"""
lib = ctypes.CDLL(load_inline("bump", SOURCE, functions=None, no_implicit_headers=True, is_python_module=False))
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.bump(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
        return y
'''
TRITON = """
import torch, triton, triton.language as tl
@triton.jit
def bump(x, y, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < n)
    tl.store(y + place, value + 1, mask=place < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        bump[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256, num_warps=4)
        return y
"""
CUDA = '''
import ctypes, torch
from torch.utils.cpp_extension import load_inline
CUDA = r"""
__global__ void bump_kernel(const float* x, float* y, int n) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < n) y[place] = x[place] + 1;
}
extern "C" void bump(const float* x, float* y, int n) { bump_kernel<<<(n + 255) / 256, 256>>>(x, y, n); }
"""
load_inline("bump", "", CUDA, functions=None, no_implicit_headers=True, is_python_module=False)
class ModelNew(torch.nn.Module):
    pass
'''


def job(source: str, backend: str = "cpp") -> Job:
    return Job(problem="bump", problem_source=PROBLEM, source=source, backend=backend)


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    """A builder in a folder of its own; the workbench's builds lie elsewhere. Only it sees that folder as the temporary
    one: other tests' judges outlive it."""
    zygote, before = Zygote(1), tempfile.tempdir
    folder = Path(tempfile.mkdtemp(prefix="kb-test-"))
    folder.chmod(0o711)
    tempfile.tempdir = str(folder)
    try:
        made = Builder(zygote, fenced=True)
    finally:
        tempfile.tempdir = before
    yield made
    zygote.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def code_of(builder: Builder) -> Callable[..., str]:
    """Builds a source and hashes what came of it."""

    def build(source: str, backend: str = "cpp") -> str:
        artifact = builder.build(job(source, backend))
        assert artifact.failure is None, artifact.failure
        return binary_sha256(artifact.folder)

    return build


def test_the_same_source_gives_the_same_hash_in_another_folder_at_another_time(builder, workbench, code_of):
    artifact = workbench.build(job(CPP))
    own = builder.build(job(CPP))
    assert Path(artifact.folder).parent != Path(own.folder).parent
    assert binary_sha256(artifact.folder) == binary_sha256(own.folder) != ""
    assert len(binary_sha256(own.folder)) == 64


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value", "other"),
        ("helper", "a_longer_name_of_a_static_function"),
        ("// a comment", "// other words\n\n"),
        ("value + 1;", "1 + value;"),
        ("++i", "i += 1"),
    ],
)
def test_names_comments_and_spelling_give_the_same_code(code_of, old, new):
    assert old in CPP
    assert code_of(CPP.replace(old, new)) == code_of(CPP)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value + 1;", "value + 2;"),
        ("value + 1;", "value - 1;"),
        ("is_python_module=False)", 'is_python_module=False, extra_cflags=["-O3"])'),
        ("void bump(", "void bump2("),
        ("void twice(", "void thrice("),
    ],
)
def test_other_code_other_flags_and_other_exported_names_give_another_hash(code_of, old, new):
    assert old in CPP
    assert code_of(CPP.replace(old, new)) != code_of(CPP)


def test_functions_that_change_their_names_with_each_other_are_another_program(code_of):
    swapped = CPP.replace("void bump(", "void other(").replace("void twice(", "void bump(")
    assert code_of(swapped.replace("void other(", "void twice(")) != code_of(CPP)


def test_a_build_that_compiles_nothing_has_no_hash(code_of):
    assert code_of("import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x + 1\n") == ""


def test_two_extensions_of_one_name_have_no_hash(code_of):
    """Which of them a call loads depends on its source, which the hash does not know."""
    first = "load_inline('a', 'int one() { return 1; }', no_implicit_headers=True, is_python_module=False)\n"
    source = "import torch\nfrom torch.utils.cpp_extension import load_inline\n"
    source += "class ModelNew(torch.nn.Module): pass\n" + first
    assert code_of(source) != ""
    assert code_of(source + first.replace("'a'", "'b'")) != ""
    assert code_of(source + first.replace("one", "two")) == ""


def test_a_failed_build_has_no_hash(builder):
    artifact = builder.build(job(CPP.replace("value + 1", "missing")))
    assert artifact.failure.verdict is Verdict.COMPILE_ERROR
    assert binary_sha256(artifact.folder) == ""


def test_triton_kernels_count_by_their_binaries_and_launch(code_of):
    pytest.importorskip("triton")
    known = code_of(TRITON, "triton")
    assert known != ""
    for old, new in (("value", "other"), ("    place =", "    # a comment\n\n    place =")):
        assert code_of(TRITON.replace(old, new), "triton") == known
    for old, new in (("value + 1", "value + 2"), ("num_warps=4", "num_warps=8")):
        assert code_of(TRITON.replace(old, new), "triton") != known


def test_a_triton_kernel_that_is_compiled_in_several_ways_has_no_hash(code_of):
    pytest.importorskip("triton")
    line = "        bump[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256, num_warps=4)\n"
    assert code_of(TRITON.replace(line, line + line.replace("256", "128")), "triton") == ""


def test_what_is_left_to_the_first_call_on_the_device_has_no_hash(code_of):
    pytest.importorskip("triton")
    left = TRITON.replace("y = torch", "n = int(x.sum())\n        y = torch")
    assert code_of(left, "triton") == ""


@pytest.mark.slow
@pytest.mark.skipif(cuda.find_toolkit() is None, reason="needs nvcc")
def test_cuda_counts_by_its_code_too(code_of):
    known = code_of(CUDA, "cuda")
    assert known != ""
    assert code_of(CUDA.replace("place", "where"), "cuda") == known
    assert code_of(CUDA.replace("+ 1;", "+ 2;"), "cuda") != known


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library with a function and a constant that it does not name."""
    source = tmp_path / "a.cpp"
    source.write_text('extern "C" int f(int i) { static const int table[] = {3, 1, 4, 1, 5}; return table[i % 5]; }\n')
    target = tmp_path / "a.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-O2", str(source), "-o", str(target)], check=True)
    return target


def test_symbols_that_no_loader_maps_do_not_count(library):
    before = library.read_bytes()
    subprocess.run(["strip", "--strip-all", str(library)], check=True)
    assert library.read_bytes() != before
    assert code_sha256(library.read_bytes()) == code_sha256(before)


def test_every_mapped_byte_counts_even_where_the_section_table_hides_it(library):
    elf = bytearray(library.read_bytes())
    place = elf.index(struct.pack("<5i", 3, 1, 4, 1, 5))
    known = code_sha256(bytes(elf))
    elf[40:48] = bytes(8)  # no section table
    elf[58:64] = bytes(6)
    assert code_sha256(bytes(elf)) == known
    elf[place] = 7
    assert code_sha256(bytes(elf)) != known


def test_what_is_no_elf_file_is_refused(library):
    elf = library.read_bytes()
    for text in (b"", b"\x7fELF", b"MZ" + elf[2:], elf[:4] + b"\x01" + elf[5:], elf[: len(elf) // 8]):
        with pytest.raises((ValueError, struct.error)):
            code_sha256(text)


@pytest.mark.parametrize(
    "report", ["", "[]", "{}", '{"name": "../../a"}', '{"name": "gone"}', '{"name": 7}', "\x00", "[" * 100_000]
)
def test_reports_that_a_build_may_have_forged_give_no_hash(tmp_path, report):
    extension = tmp_path / "products" / "abc"
    extension.mkdir(parents=True)
    (extension / "build.json").write_text(report)
    assert binary_sha256(str(tmp_path)) == ""


def test_links_and_large_files_are_not_read(tmp_path, library):
    extension = tmp_path / "build" / "products" / "abc"
    extension.mkdir(parents=True)
    (extension / "build.json").write_text(json.dumps({"name": "a"}))
    (extension / "a.so").symlink_to(library)
    assert binary_sha256(str(tmp_path / "build")) == ""
    (extension / "a.so").unlink()
    shutil.copy(library, extension / "a.so")
    assert binary_sha256(str(tmp_path / "build")) != ""
    with open(extension / "a.so", "r+b") as file:
        file.truncate((64 << 20) + 1)
    assert binary_sha256(str(tmp_path / "build")) == ""
