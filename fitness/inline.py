"""Our own torch.utils.cpp_extension.load_inline, for the child process that executes a candidate's module.

In the build step it compiles what the candidate asks for (fitness/backends/{cpp,cuda}.py say how) into the products
folder, under a hash of everything that the result depends on; in the runner it only loads what stands there.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import tempfile
import time
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fitness.backends import cpp, cuda

Mode = Literal["build", "load"]

CUDA_HEADERS = ("torch/types.h", "cuda.h", "cuda_runtime.h")
"""What load_inline puts before CUDA sources."""

NOT_BUILT = "this candidate asks for an extension that was not built in the build step: "


@dataclass(frozen=True, slots=True)
class Products:
    """The folder that holds a candidate's compiled extensions; `build` fills it, `load` only reads."""

    mode: Mode
    folder: Path
    arch: str = ""
    """What CUDA sources are compiled for (`sm_90`); empty: the candidate may have none."""


def install(mode: Mode, products_dir: str, arch: str = "") -> None:
    """Replace torch's load_inline and load in this process by ours, working in `products_dir`.

    With an `arch` such as `sm_90` CUDA sources are compiled for it, otherwise they are refused; load mode takes it
    from the build.
    """
    if mode not in ("build", "load"):
        raise ValueError(f"mode must be 'build' or 'load', found {mode!r}")
    from torch.utils import cpp_extension

    folder = Path(products_dir).absolute()
    kept = folder / "arch.txt"
    if arch and mode == "build":
        folder.mkdir(parents=True, exist_ok=True)
        _write(kept, arch)
    elif mode == "load" and kept.exists():  # what it was built for, whatever the runner's job says
        arch = kept.read_text()
    products = Products(mode, folder, arch)
    replacements = {"load_inline": functools.partial(load_inline, products), "load": functools.partial(load, products)}
    for name, replacement in replacements.items():
        setattr(cpp_extension, name, replacement)


def load_inline(
    products: Products,
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | dict[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
) -> Any:
    """The module, or the library's path: torch's load_inline for C++ and CUDA sources, argument by argument.

    build_directory, verbose, keep_intermediates and use_pch change nothing here. Raises RuntimeError with
    the compiler's lines, or one that says that a product or a compiler is missing, or that CUDA has no place here.
    """
    is_cuda = _asks_for_cuda(products, name, cuda_sources, with_cuda)
    _refuse_sycl(name, sycl_sources, with_sycl)
    parts = [] if no_implicit_headers else ["#include <torch/extension.h>"]
    parts += [cpp_sources] if isinstance(cpp_sources, str) else cpp_sources
    parts += _bindings(functions, with_pytorch_error_handling)
    files = [("main.cpp", "\n".join(parts))]
    kernels = [cuda_sources] if isinstance(cuda_sources, str) else list(cuda_sources or ())
    if is_cuda and kernels:
        implicit = [] if no_implicit_headers else [f"#include <{header}>" for header in CUDA_HEADERS]
        files.append(("cuda.cu", "\n".join([*implicit, *kernels])))
    flags = {
        "extra_cflags": extra_cflags,
        "extra_cuda_cflags": extra_cuda_cflags,
        "extra_ldflags": extra_ldflags,
        "extra_include_paths": extra_include_paths,
    }
    extension = _extension(name, tuple(files), flags, is_python_module)
    return _obtain(products, dataclasses.replace(extension, is_cuda=is_cuda, arch=products.arch if is_cuda else ""))


def load(
    products: Products,
    name: str,
    sources: str | Sequence[str],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> Any:
    """The module, or the library's path: torch's load for C++ and CUDA source files; raises as load_inline does."""
    if is_standalone:
        raise RuntimeError(f"extension {name!r} asks for an executable; only libraries are built here")
    paths = [os.path.abspath(path) for path in ([sources] if isinstance(sources, str) else sources)]
    is_cuda = _asks_for_cuda(products, name, [path for path in paths if path.endswith((".cu", ".cuh"))], with_cuda)
    _refuse_sycl(name, [path for path in paths if path.endswith(".sycl")], with_sycl)
    files = tuple((path, Path(path).read_text()) for path in paths)
    flags = {
        "extra_cflags": extra_cflags,
        "extra_cuda_cflags": extra_cuda_cflags,
        "extra_ldflags": extra_ldflags,
        "extra_include_paths": extra_include_paths,
    }
    extension = _extension(name, files, flags, is_python_module)
    return _obtain(products, dataclasses.replace(extension, is_cuda=is_cuda, arch=products.arch if is_cuda else ""))


def _asks_for_cuda(products: Products, name: str, sources: Any, wanted: bool | None) -> bool:
    """Whether an extension has CUDA parts (blank sources count as none); RuntimeError where it may have none."""
    texts = [sources] if isinstance(sources, str) else sources or []
    asks = bool(wanted) or any(text.strip() for text in texts)
    if asks and not products.arch:
        raise RuntimeError(f"extension {name!r} has CUDA sources; the cpp backend has no CUDA, only C++")
    return asks


def _refuse_sycl(name: str, sources: Any, wanted: bool | None) -> None:
    texts = [sources] if isinstance(sources, str) else sources or []
    if wanted or any(text.strip() for text in texts):
        raise RuntimeError(f"extension {name!r} has SYCL sources; no backend has SYCL, only C++ and CUDA")


def _bindings(functions: Any, with_pytorch_error_handling: bool) -> list[str]:
    """The PYBIND11_MODULE that load_inline writes for `functions`."""
    if functions is None:
        return []
    if isinstance(functions, str):
        functions = [functions]
    if isinstance(functions, list):
        functions = {function: function for function in functions}
    if not isinstance(functions, dict):
        raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(functions)}")
    wrapped = "torch::wrap_pybind_function({})" if with_pytorch_error_handling else "{}"
    lines = [f'm.def("{name}", {wrapped.format(name)}, "{doc}");' for name, doc in functions.items()]
    return ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}"]


def _extension(
    name: str, files: tuple[tuple[str, str], ...], flags: dict[str, Sequence[str] | None], is_python_module: bool
) -> cpp.Extension:
    """The request as a value; flags are split as the shell under torch's ninja would split them."""
    if not re.fullmatch(r"[\w.\-]+", name) or name.startswith("."):
        raise RuntimeError(f"an extension's name must be letters, digits, '_', '.', '-', found {name!r}")
    for argument, value in flags.items():
        if isinstance(value, str):
            raise TypeError(f"{argument} of extension {name!r} must be a list of strings, found the string {value!r}")
    folders = tuple(os.path.abspath(path.strip()) for path in flags["extra_include_paths"] or ())
    cflags, ldflags = _split(flags["extra_cflags"]), _split(flags["extra_ldflags"])
    cuda_cflags = _split(flags["extra_cuda_cflags"])
    return cpp.Extension(name, files, cflags, ldflags, folders, is_python_module, cuda_cflags=cuda_cflags)


def _split(flags: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(part for flag in flags or () for part in shlex.split(flag))


def _obtain(products: Products, extension: cpp.Extension) -> Any:
    """The loaded extension, compiled first in build mode if the folder lacks it."""
    folder = products.folder / _key(products, extension)
    library, rebuilt = folder / f"{extension.name}.so", folder / f"{extension.name}.rebuilt.so"
    if rebuilt.exists():
        return _import_library(extension, rebuilt)
    if products.mode == "load":
        if not library.exists():
            raise RuntimeError(NOT_BUILT + extension.name)
        return _import_library(extension, library)
    if not library.exists():
        _build(products, extension, folder)
    try:
        return _import_library(extension, library)
    except (ImportError, OSError) as error:
        route = json.loads((folder / "build.json").read_text())["route"]
        if route == "full":
            raise
        shutil.rmtree(folder)
        _build(products, extension, folder, why_not_cheap=f"the {route} product did not load: {error}"[:300])
        os.rename(library, rebuilt)  # for this process the old path still stands for the library that failed
        return _import_library(extension, rebuilt)


def _import_library(extension: cpp.Extension, library: Path) -> Any:
    """What torch's load_inline returns: the module, or the path of a library that is now loaded."""
    import importlib.util

    import torch

    if extension.is_cuda and not cuda.has_cuda():
        return _Unloadable(extension) if extension.is_python_module else str(library)
    if not extension.is_python_module:
        torch.ops.load_library(str(library))
        return str(library)
    spec = importlib.util.spec_from_file_location(extension.name, library)
    if spec is None or spec.loader is None:
        raise ImportError(f"no import machinery for {library}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Unloadable(types.ModuleType):
    """What stands for a CUDA module where this torch has no CUDA: it was built, and any use of it raises."""

    def __init__(self, extension: cpp.Extension) -> None:
        super().__init__(extension.name)
        self._reason = f"extension {extension.name!r} was built for {extension.arch}; this torch has no CUDA to run it"

    def __getattr__(self, name: str) -> Any:
        def refuse(*_arguments: Any, **_named: Any) -> Any:
            raise RuntimeError(self._reason)

        if name.startswith("__"):
            raise AttributeError(name)
        return refuse


def _key(products: Products, extension: cpp.Extension) -> str:
    """Hex digest of all that the product depends on; load mode starts no process to find it."""
    import torch

    facts: list[Any] = [torch.__version__, _toolchain(products), extension.files, extension.name, extension.cflags]
    facts += [extension.ldflags, extension.include_paths, extension.is_python_module]
    if extension.is_cuda:
        facts += [extension.arch, extension.cuda_cflags, _toolchain(products, "nvcc")]
    if any(flag.endswith("=native") for flag in extension.cflags):
        facts.append(cpp.cpu())
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _toolchain(products: Products, compiler: Literal["c++", "nvcc"] = "c++") -> str:
    """The compiler's own version line, kept beside the products so that load mode finds the same key."""
    kept = products.folder / ("toolchain.txt" if compiler == "c++" else "nvcc.txt")
    if kept.exists():
        return kept.read_text()
    if products.mode == "load":
        return "none"
    if compiler == "c++":
        version = cpp.run([*cpp.compiler(), "--version"], products.folder).stdout.splitlines()[0]
        text = f"{shlex.join(cpp.compiler())}: {version}"
    else:
        text = cuda.toolchain(products.folder)
    products.folder.mkdir(parents=True, exist_ok=True)
    _write(kept, text)
    return text


def _write(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(temporary, path)


def _build(products: Products, extension: cpp.Extension, folder: Path, why_not_cheap: str = "") -> None:
    """Compile into `folder`, which appears at once and complete; raises cpp.CompileError."""
    started = time.perf_counter()
    products.folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="build-", dir=products.folder))
    try:
        for path, text in extension.files:
            if not os.path.isabs(path):
                (work / path).write_text(text)
        kernels: list[dict[str, Any]] = []
        if extension.is_cuda:
            bridge = products.folder / cuda.BRIDGE
            route, reason, kernels = cuda.compile_by_cheapest_route(extension, work, why_not_cheap, bridge)
        else:
            route, reason = cpp.compile_by_cheapest_route(extension, work, why_not_cheap)
        compile_s = round(time.perf_counter() - started, 3)
        report = {"name": extension.name, "route": route, "compile_s": compile_s, "fallback_reason": reason[:300]}
        report.update({"kernels": kernels} if extension.is_cuda else {})
        (work / "build.json").write_text(json.dumps(report))
        try:
            os.rename(work, folder)
        except OSError:
            if not folder.exists():  # otherwise: another builder of the same key was faster
                raise
    except cpp.CompileError as error:
        _write(products.folder / "compile_error.txt", str(error))
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
