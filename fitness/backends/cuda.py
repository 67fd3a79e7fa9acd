"""Compiling a candidate's CUDA extension by the cheapest route that works.

nvcc reads every header three times, so that torch/extension.h in a .cu file costs 69 s on an H200's host.

lean  no torch header at all: nvcc alone, linked with the CUDA runtime and nothing else.
slim  torch's headers replaced by `fitness/slim/light`: dtypes, options, errors, accessors and dispatch macros are
      torch's own; the tensor is one pointer whose operations stand in a separate object, `bridge.o`. That is
      compiled once per torch and compiler with torch's tensors, and linked into each library.
full  torch's own headers, when the slim route does not compile, link or load.

Every file is compiled for exactly one architecture, whatever TORCH_CUDA_ARCH_LIST and the candidate's flags say.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sysconfig
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness.backends import cpp
from fitness.backends.cpp import CompileError, Extension, Route

DEFAULT_ARCH = "sm_90"
"""What is compiled for where no device and no architecture is named."""

LIGHT_DIR = cpp.SLIM_DIR / "light"
BRIDGE = "bridge.o"

INSTALL_NVCC = (
    "no nvcc: expected $CUDA_HOME/bin/nvcc, nvcc on PATH, /usr/local/cuda, or pip's own (pip install "
    "nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 "
    "nvidia-cuda-runtime==13.0.96)"
)

NEEDS_FULL = re.compile(
    r"\btorch::(?:nn|jit|autograd|optim|data|serialize|fft|linalg|special|sparse|nested|cuda|mps|xpu|python|tensor|rand"
    r"|randn|manual_seed|save|load|indexing)\b"
    r"|\bpy(?:bind11)?::(?:class_|object|dict|list|tuple|array\w*|args|kwargs|call_guard|enum_|overload_cast)\b"
    r"|\bTORCH_LIBRARY\w*|\brequires_grad(?!\(false\))|\bc10::complex|\w*COMPLEX\b|\bcublas\w*|\bcudnn\w*|\bcusparse\w*"
    r"|\bat::cuda::(?:detail|blas|philox|getCurrentCUDABlas\w*)\b"
)
"""Names that the light headers lack for certain: what would only fail later goes to the full headers at once."""

ARCH_CHOICE = re.compile(r"^(?:-arch|--gpu-architecture|-code|--gpu-code|-gencode|--generate-code)(=.*)?$")
ARCH_SPECIFIC = re.compile(r"\bwgmma\b|\bsetmaxnreg\b|\btcgen05\b|__CUDA_ARCH_FEAT_SM\d+_ALL")
"""Instructions that exist only in an architecture's own dialect, such as sm_90a."""

KERNEL_LIMIT = 16
"""Kernels of one extension whose resources are kept."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """An nvcc and what lies beside it."""

    root: Path
    nvcc: Path

    @property
    def include(self) -> Path:
        return self.root / "include"

    @property
    def runtime(self) -> Path | None:
        """libcudart: with its version in the name only, as pip has it, or in a folder of an architecture."""
        for folder in ("lib64", "lib", "targets/x86_64-linux/lib"):
            found = sorted((self.root / folder).glob("libcudart.so*"))
            if found:
                return found[0]
        return None


def find_toolkit() -> Toolkit | None:
    """The CUDA compiler here: CUDA_HOME's, the one on PATH, /usr/local/cuda's, or pip's; None where there is none."""
    named = [Path(os.environ["CUDA_HOME"], "bin", "nvcc")] if os.environ.get("CUDA_HOME") else []
    on_path = shutil.which("nvcc")
    named += [_behind_script(Path(on_path))] if on_path else []
    named += [Path("/usr/local/cuda/bin/nvcc")]
    site = Path(sysconfig.get_path("purelib"))
    named += sorted((site / "nvidia").glob("cu*/bin/nvcc"), reverse=True)
    named += sorted((site / "nvidia").glob("cuda_nvcc/bin/nvcc"))
    for path in named:
        if os.access(path, os.X_OK):
            return Toolkit(path.resolve().parent.parent, path.resolve())
    return None


def toolkit() -> Toolkit:
    """As `find_toolkit`; raises RuntimeError that says what to install where there is none."""
    found = find_toolkit()
    if found is None:
        raise RuntimeError(INSTALL_NVCC)
    return found


def toolchain(work: Path) -> str:
    """Which nvcc this is: its path and the line that names its build."""
    kit = toolkit()
    lines = cpp.run([str(kit.nvcc), "--version"], work).stdout.splitlines()
    return f"{kit.nvcc}: {lines[-1] if lines else 'no version'}"


def compile_by_cheapest_route(
    extension: Extension, work: Path, why_not_cheap: str, bridge: Path
) -> tuple[Route, str, list[dict[str, Any]]]:
    """(route taken, why it had to be the full one, resources of each kernel).

    `bridge` is the object to link on the slim route; it is compiled first where it does not exist.
    """
    if not why_not_cheap and not any(cpp.TORCH_INCLUDE.search(text) for _, text in extension.files):
        return "lean", "", _compile(extension, work, "lean", bridge)
    reason = why_not_cheap or why_not_slim(extension)
    if not reason:
        try:
            return "slim", "", _compile(extension, work, "slim", bridge)
        except CompileError as error:
            if is_certain(str(error), extension):
                raise
            first = re.search(r"error: (.*)|undefined reference to (.*)", str(error))
            reason = f"did not compile: {first.group(0) if first else str(error)[:200]}"
    return "full", reason, _compile_full(extension, work, reason, bridge)


def _compile_full(extension: Extension, work: Path, reason: str, bridge: Path) -> list[dict[str, Any]]:
    """The full route; RuntimeError where this machine lacks a header that torch's own headers need."""
    try:
        return _compile(extension, work, "full", bridge)
    except CompileError as error:
        missing = re.search(r"^(\S+?):\d+:\d+: fatal error: (\S+): No such file", str(error), re.MULTILINE)
        if missing is None or missing.group(1) in {path for path, _ in extension.files}:
            raise
        raise RuntimeError(
            f"extension {extension.name!r} needs torch's own headers ({reason}), and these need {missing.group(2)}, "
            "which this machine lacks: install the CUDA toolkit's libraries, or CUDA's torch from pip"
        ) from error


def why_not_slim(extension: Extension) -> str:
    """Why a source must not be tried with the light headers; empty if it may be."""
    import torch

    if not torch.__version__.startswith(cpp.SLIM_TORCH):
        return f"the slim headers are for torch {', '.join(cpp.SLIM_TORCH)}, found {torch.__version__}"
    found = NEEDS_FULL.search(extension.text)
    return f"uses {found.group(0)}" if found else ""


def is_certain(message: str, extension: Extension) -> bool:
    """Whether the slim route's first error must be the candidate's own, whatever headers are used.

    That holds for a syntax error in the candidate's own file, and for an unknown name that neither torch's headers
    nor CUDA's contain. It saves the full route, a minute, for sources that cannot compile.
    """
    first = re.search(r"^([^\s:(]+)[:(](\d+).*?error: (.*)$", message, re.MULTILINE)
    texts = dict(extension.files)
    if first is None or first.group(1) not in texts:
        return False
    unknown = re.match(r"""identifier "(\w+)" is undefined|'(\w+)' was not declared in this scope""", first.group(3))
    if unknown is not None:
        return not _is_in_headers(unknown.group(1) or unknown.group(2))
    line = int(first.group(2))
    near = "\n".join(texts[first.group(1)].split("\n")[max(line - 3, 0) : line])
    is_syntax = first.group(3).startswith(("expected a", "unrecognized token"))
    return is_syntax and re.search(r"\b[A-Z][A-Z0-9_]{2,}\b", near) is None  # that could be a macro of torch's


def _is_in_headers(name: str) -> bool:
    if re.match(r"k[A-Z]", name):  # dtypes and devices: macros put these names together
        return True
    system = [folder for folder in ("/usr/include", "/usr/lib/gcc") if os.path.isdir(folder)]
    folders = [f"{cpp.torch_dir()}/include", str(toolkit().include), *system]
    return cpp.run(["grep", "-rqwFI", name, *folders], Path("/")).returncode == 0


def architecture(extension: Extension) -> str:
    """The one architecture to compile for: the device's, in its own dialect (sm_90a) if the source asks for that."""
    arch = extension.arch or DEFAULT_ARCH
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise RuntimeError(f"arch must look like sm_90, found {arch!r}")
    number = arch.removeprefix("sm_")
    asks = any(f"{number}a" in flag for flag in extension.cuda_cflags) or ARCH_SPECIFIC.search(extension.text)
    return f"{arch}a" if asks and number.isdigit() and int(number) >= 90 else arch


def own_flags(flags: Sequence[str]) -> list[str]:
    """The candidate's nvcc flags without those that choose architectures."""
    kept: list[str] = []
    is_value = False
    for flag in flags:
        match = ARCH_CHOICE.match(flag)
        if match is None and not is_value:
            kept.append(flag)
        is_value = match is not None and match.group(1) is None
    return kept


def nvcc_flags(extension: Extension, route: Route) -> list[str]:
    """What torch gives to nvcc, for one architecture, with the light headers before torch's on the slim route."""
    from torch.utils import cpp_extension

    number = architecture(extension).removeprefix("sm_")
    flags = [*_common_flags(extension, route), *cpp_extension.COMMON_NVCC_FLAGS]
    flags += [f"-gencode=arch=compute_{number},code=sm_{number}", "--compiler-options", "-fPIC", "-Xptxas", "-v"]
    flags += own_flags(extension.cuda_cflags)
    if not any(flag.startswith(("-std=", "--std=")) for flag in flags):
        flags.append(f"-std={cpp.standard()}")
    return ["-ccbin", os.environ["CC"], *flags] if os.environ.get("CC") else flags


def _common_flags(extension: Extension, route: Route) -> list[str]:
    """Definitions and header folders, the same for both compilers."""
    torch_dir = cpp.torch_dir()
    flags = [f"-DTORCH_EXTENSION_NAME={extension.name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    if route != "lean" and not (torch_dir / "include/c10/cuda/impl/cuda_cmake_macros.h").exists():
        flags.append("-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE")  # a torch without CUDA lacks the generated header
    flags += [f"-I{path}" for path in extension.include_paths]
    flags += _light_flags(extension.text) if route == "slim" else []
    folders = [f"{torch_dir}/include", f"{torch_dir}/include/torch/csrc/api/include", str(toolkit().include)]
    bundled = sorted(str(path) for path in Path(sysconfig.get_path("purelib"), "nvidia").glob("cu*/include"))
    for folder in (*folders, sysconfig.get_path("include"), *bundled):  # pip's CUDA libraries bring headers as well
        flags += ["-isystem", folder]
    return flags


def _light_flags(text: str) -> list[str]:
    headers = sorted({STANDARD_HEADERS.get(name, "") for name in re.findall(r"\bstd::(\w+)", text)} - {""})
    headers += ["ATen/core/grad_mode.h"] if "NoGradGuard" in text else []
    headers += ["cuda_fp16.h"] if re.search(r"\b__(?:half|float2half|half2float|h\w+2?)\b|\bhalf2?\b", text) else []
    headers += ["cuda_bf16.h"] if re.search(r"\b__(?:nv_)?bfloat16|bfloat162?\b", text) else []
    flags = ["-DKB_LIGHT", f"-I{LIGHT_DIR}", f"-I{cpp.SLIM_DIR}"]
    flags += ["-DKB_LIGHT_BINDINGS"] if re.search(r"\bPYBIND11_MODULE\b|\bpy(?:bind11)?::", text) else []
    return [*flags, *(part for header in headers for part in ("-include", header))]


STANDARD_HEADERS = {
    **cpp.STANDARD_HEADERS,
    **dict.fromkeys(("mutex", "lock_guard", "unique_lock", "once_flag", "call_once"), "mutex"),
    **dict.fromkeys(("shared_ptr", "unique_ptr", "make_shared", "make_unique", "weak_ptr"), "memory"),
    **dict.fromkeys(("function", "bind", "plus", "multiplies", "hash"), "functional"),
    **dict.fromkeys(("accumulate", "iota", "inner_product", "partial_sum", "gcd", "lcm"), "numeric"),
    "map": "map",
    "unordered_map": "unordered_map",
    "atomic": "atomic",
    "chrono": "chrono",
    "complex": "complex",
    "variant": "variant",
}
"""Names of std:: whose headers torch/types.h brings along and the light headers don't."""


def _compile(extension: Extension, work: Path, route: Route, bridge: Path) -> list[dict[str, Any]]:
    """Compile all files at once and link `work`/NAME.so; the resources of its kernels."""
    steps: list[list[str]] = []
    objects: list[str] = []
    for index, (path, text) in enumerate(extension.files):
        if text.strip():
            objects.append(f"{index}.o")
            steps.append([*_compiler(extension, route, path), "-c", path, "-o", objects[-1]])
    if route == "slim" and not bridge.exists():
        steps.append([])
    with ThreadPoolExecutor(max(len(steps), 1)) as pool:
        said = list(pool.map(lambda step: cpp.check(step, work) if step else compile_bridge(bridge), steps))
    cpp.check([*cpp.compiler(), *objects, *_link_flags(extension, route, bridge), "-o", f"{extension.name}.so"], work)
    for target in objects:
        (work / target).unlink()
    return resources("\n".join(said))


def _compiler(extension: Extension, route: Route, path: str) -> list[str]:
    if path.endswith((".cu", ".cuh")):
        return [str(toolkit().nvcc), *nvcc_flags(extension, route)]
    text = next(text for name, text in extension.files if name == path)
    light = ["-DKB_LIGHT_BINDINGS"] if route == "slim" and "PYBIND11_MODULE" in text else []
    standard = ["-fPIC", f"-std={cpp.standard()}"]
    return [*cpp.compiler(), *_common_flags(extension, route), *light, *standard, *extension.cflags]


def compile_bridge(target: Path) -> str:
    """Compile the one object that sees torch's tensors; it appears at once and complete."""
    torch_dir, work = cpp.torch_dir(), target.parent
    flags = ["-DTORCH_EXTENSION_NAME=bridge", f"-I{cpp.SLIM_DIR}", f"-I{LIGHT_DIR / 'kb_light'}"]
    for folder in (
        f"{torch_dir}/include",
        f"{torch_dir}/include/torch/csrc/api/include",
        sysconfig.get_path("include"),
    ):
        flags += ["-isystem", folder]
    flags += ["-fPIC", "-fvisibility=hidden", "-O2", f"-std={cpp.standard()}"]
    fresh = work / f".{os.getpid()}.{threading.get_ident()}.{target.name}"
    said = cpp.check([*cpp.compiler(), *flags, "-c", str(LIGHT_DIR / "kb_light/bridge.cpp"), "-o", str(fresh)], work)
    os.replace(fresh, target)
    return said


def _link_flags(extension: Extension, route: Route, bridge: Path) -> list[str]:
    """torch's libraries, as far as this torch has them; what is missing stays open until a GPU machine loads it."""
    flags = ["-shared", *extension.ldflags, *(["-fopenmp"] if "-fopenmp" in extension.cflags else [])]
    flags += [str(bridge)] if route == "slim" else []
    if route != "lean":
        folder = cpp.torch_dir() / "lib"
        names = ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "torch", "torch_python")
        flags += [f"-L{folder}", *(f"-l{name}" for name in names if (folder / f"lib{name}.so").exists())]
    runtime = toolkit().runtime
    return [*flags, f"-L{runtime.parent}", str(runtime), f"-Wl,-rpath,{runtime.parent}"] if runtime else flags


def resources(said: str) -> list[dict[str, Any]]:
    """Each kernel's registers, spilled bytes and static shared memory, from what `ptxas -v` printed."""
    kernels = []
    for part in re.split(r"Compiling entry function ", said)[1:]:
        name = re.match(r"'([^']+)'", part)
        if name is None:
            continue
        spills = [int(number) for number in re.findall(r"(\d+) bytes spill (?:stores|loads)", part)]
        kernels.append(
            {
                "name": name.group(1)[:200],
                "registers": _number(r"Used (\d+) registers", part),
                "spill_bytes": sum(spills[:2]),
                "shared_bytes": _number(r"(\d+) bytes smem", part),
            }
        )
    return kernels[:KERNEL_LIMIT]


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found.group(1)) if found else 0


def has_cuda() -> bool:
    """Whether this torch can load what was compiled: one without CUDA lacks the libraries."""
    import torch

    return torch.version.cuda is not None


def _behind_script(path: Path) -> Path:
    """The nvcc that a two-line shell script on PATH starts, else the path itself."""
    if path.stat().st_size > 500:
        return path
    target = re.search(r'^exec\s+"?(/\S+?/nvcc)"?\s', path.read_text(errors="replace"), re.MULTILINE)
    return Path(shlex.split(target.group(1))[0]) if target else path
