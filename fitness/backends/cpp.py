"""Compiling a candidate's C++ extension by the cheapest route that works.

torch's load_inline spends 26 s on a kernel that includes torch/extension.h, nearly all of it in headers.

lean  no torch header at all: plain g++, no torch libraries.
slim  torch/extension.h replaced by `fitness/slim`, whose headers declare the part of torch and pybind11
      that kernels use; operators are included one by one, as the source names them.
full  torch's own headers. Taken when the source names something that the slim headers lack, and
      whenever the slim route fails to compile or load; a compile error shown is always the full route's.

The source is the same text on the slim and the full route, and the same that torch would compile. A
precompiled slim header was measured and left out: it saves 1.5 CPU seconds of 2.7, costs 5.5 and 146 MB per
set of flags (experiments/bench/results/extension_build.json), and would be state shared between untrusted
candidates. With torch's full headers precompiled (790 MB) a build still took 13 s.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Route = Literal["lean", "slim", "full"]

ERROR_LIMIT = 8_000
"""Characters of compiler output kept in a compile error."""

SLIM_DIR = Path(__file__).parent.parent / "slim"
SLIM_TORCH = ("2.11.", "2.13.")
"""The slim headers declare parts of libtorch_python by hand, as these versions have them."""

TORCH_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](?:torch|ATen|c10|pybind11)/', re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

NEEDS_FULL = re.compile(
    r"\btorch::(?:nn|jit|autograd|optim|data|serialize|fft|linalg|special|sparse|nested|cuda|mps|xpu|python|tensor"
    r"|manual_seed|save|load)\b"
    r"|\bat::(?:tensor|globalContext|Context|cuda)\b"
    r"|\bpy(?:bind11)?::(?:class_|object|dict|list|tuple|array\w*|args|kwargs|call_guard|enum_|overload_cast)\b"
    r"|\bTORCH_LIBRARY\w*|\brequires_grad(?!\(false\))|\bDeviceGuard\b"
)
"""Names that the slim headers lack, or that mean something else there (requires_grad, torch::tensor)."""

STANDARD_HEADERS = {
    "bitset": "bitset",
    "deque": "deque",
    "list": "list",
    "priority_queue": "queue",
    "queue": "queue",
    "set": "set",
    "span": "span",
    "stack": "stack",
    "this_thread": "thread",
    "thread": "thread",
    "unordered_set": "unordered_set",
    "valarray": "valarray",
}
"""Names of std:: whose headers torch/extension.h brings along and the slim headers don't."""


@dataclass(frozen=True, slots=True)
class Extension:
    """One extension that a candidate asks for: what to compile, how, and what to hand back."""

    name: str
    files: tuple[tuple[str, str], ...]
    """(path, text) of each source file; a relative path is written in the build's own folder first."""
    cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    include_paths: tuple[str, ...]
    is_python_module: bool
    is_cuda: bool = False
    """Whether CUDA's headers and libraries belong to it: it has .cu files, or says so (fitness/backends/cuda.py)."""
    cuda_cflags: tuple[str, ...] = ()
    arch: str = ""

    @property
    def text(self) -> str:
        """All source text without comments."""
        return COMMENT.sub(" ", "\n".join(text for _, text in self.files))


class CompileError(RuntimeError):
    """The compiler refused the source; the text is the compiler's own lines."""


def compile_by_cheapest_route(extension: Extension, work: Path, why_not_cheap: str) -> tuple[Route, str]:
    """(route taken, why it had to be the full one)."""
    if not why_not_cheap and not any(TORCH_INCLUDE.search(text) for _, text in extension.files):
        _compile(extension, work, "lean")
        return "lean", ""
    reason = why_not_cheap or why_not_slim(extension.text)
    if not reason:
        try:
            _compile(extension, work, "slim")
            return "slim", ""
        except CompileError as error:
            first = re.search(r"error: (.*)|undefined reference to (.*)", str(error))
            reason = f"did not compile: {first.group(0) if first else str(error)[:200]}"
    _compile(extension, work, "full")
    return "full", reason


def why_not_slim(text: str) -> str:
    """Why a source must not be tried with the slim headers; empty if it may be."""
    import torch

    if not torch.__version__.startswith(SLIM_TORCH):
        return f"the slim headers are for torch {', '.join(SLIM_TORCH)}, found {torch.__version__}"
    found = NEEDS_FULL.search(text)
    return f"uses {found.group(0)}" if found else ""


def compile_flags(extension: Extension, route: Route) -> list[str]:
    """What torch gives to the compiler, with the slim headers before torch's on the slim route."""
    headers = torch_dir()
    flags = [f"-DTORCH_EXTENSION_NAME={extension.name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    flags += [f"-I{path}" for path in extension.include_paths]
    flags += _slim_flags(extension.text) if route == "slim" else []
    for path in (f"{headers}/include", f"{headers}/include/torch/csrc/api/include", sysconfig.get_path("include")):
        flags += ["-isystem", path]
    return [*flags, "-fPIC", f"-std={standard()}", *extension.cflags]


def _compile(extension: Extension, work: Path, route: Route) -> None:
    """Compile and link `work`/NAME.so with one compiler call per file and one for the link.

    Compile flags are kept from the linker, as torch does it: -ffast-math given there would set the
    processor's flush-to-zero mode on load. Only -fopenmp is passed on, or the OpenMP runtime is missing.
    """
    flags = compile_flags(extension, route)
    objects = [f"{index}.o" for index in range(len(extension.files))]
    for (path, _), target in zip(extension.files, objects, strict=True):
        check([*compiler(), *flags, "-c", path, "-o", target], work)
    link = ["-shared", *extension.ldflags, *(["-fopenmp"] if "-fopenmp" in extension.cflags else [])]
    if route != "lean":
        link += [f"-L{torch_dir()}/lib", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    check([*compiler(), *objects, *link, "-o", f"{extension.name}.so"], work)
    for target in objects:
        (work / target).unlink()


def _slim_flags(text: str) -> list[str]:
    """Flags that put the slim headers before torch's and add the operators that the source names."""
    headers = ["kb_slim/all.h", *_operator_headers(text)]
    headers += ["ATen/TensorIndexing.h"] if re.search(r"\bindexing\b", text) else []
    headers += sorted({STANDARD_HEADERS.get(name, "") for name in re.findall(r"\bstd::(\w+)", text)} - {""})
    return [f"-I{SLIM_DIR}", *(part for header in headers for part in ("-include", header))]


def _operator_headers(text: str) -> list[str]:
    """ATen/ops/NAME.h of each operator called as torch::NAME or at::NAME."""
    names = set(re.findall(r"\b(?:torch|at)::(\w+)", text))
    if re.search(r"\busing\s+namespace\s+(?:torch|at)\b", text):
        names |= set(re.findall(r"\b(\w+)\s*\(", text))
    # relu_ and mm_out stand in relu.h and mm.h. at::tensor isn't torch::tensor: never bring it in.
    stems = {stem for name in names for stem in (name, name.rstrip("_"), name.removesuffix("_out"))} - {"tensor", ""}
    folder = torch_dir() / "include" / "ATen" / "ops"
    headers = sorted(f"ATen/ops/{stem}.h" for stem in stems if (folder / f"{stem}.h").exists())
    # cat and its like take a list type that the empty ATen/DeviceGuard.h would have brought (1.5 s).
    takes_list = any("ITensorListRef" in (folder.parent.parent / header).read_text() for header in headers)
    return ["ATen/core/IListRef.h", *headers] if takes_list else headers


def torch_dir() -> Path:
    """Where torch is installed; importing it is not needed for this."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise RuntimeError("torch is not installed here: pip install torch")
    return Path(spec.origin).parent


@functools.cache
def standard() -> str:
    """The C++ standard that this torch compiles extensions with: c++17 until 2.11, c++20 in 2.13."""
    text = (torch_dir() / "utils" / "cpp_extension.py").read_text()
    found = re.search(r"'-fPIC', '-std=(c\+\+\d+)'", text)
    return found.group(1) if found else "c++20"


def check(command: list[str], work: Path) -> str:
    """What the compiler printed; raises CompileError with its lines, paths shortened and the length capped."""
    done = run(command, work)
    if done.returncode == 0:
        return done.stdout + done.stderr
    text = (done.stderr or done.stdout).strip() or f"the compiler ended with status {done.returncode} and no message"
    for prefix in (work, SLIM_DIR, torch_dir() / "include"):
        text = text.replace(f"{prefix}/", "")
    raise CompileError(text[:ERROR_LIMIT])


def run(command: list[str], work: Path) -> subprocess.CompletedProcess[str]:
    """One compiler process with messages in plain English; raises RuntimeError if there is no compiler."""
    environment = {**os.environ, "LC_ALL": "C"}
    cwd = work if work.exists() else None
    try:
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, errors="replace")
    except FileNotFoundError:
        raise RuntimeError(f"no C++ compiler: expected {command[0]!r} on PATH (set CXX or install g++)") from None


def cpu() -> str:
    """This processor's model and features, on which -march=native depends."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))


def compiler() -> list[str]:
    """CXX if it is set, as torch does it; g++ otherwise."""
    return shlex.split(os.environ.get("CXX", "")) or ["g++"]
