"""The triton backend: what the child processes that execute a Triton candidate do around it.

The build child runs the candidate's forward on tensors without memory, with a stand-in for the GPU's driver, so that
Triton compiles every kernel that a real call would launch and launches none. What it compiles lies in the products
folder in Triton's own cache format; a runner on a GPU sees it through a cache folder of its own, and a runner on the
CPU interprets the kernels. fitness/backends/__init__.py says for which Tritons.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch

from fitness.backends import interpreter
from fitness.backends.pretend import Pretend, pretend_runtime
from fitness.models import dtype_of

LONGEST_S = 30
"""Compiling ahead is given up after this long; the first call on the device then compiles."""
MOST_CONFIGS = 16
"""Configurations of an autotuned kernel that are compiled ahead; more are left to the first call."""

DEFAULT_ARCH = "sm_90"
"""What is compiled for where the job names nothing."""

ROUTES = ("triton", "triton-jit")
"""All kernels compiled ahead; or something is left to the first call on the device."""

_CHIPS = {80: (166_912, 108), 86: (101_376, 84), 89: (101_376, 142), 90: (232_448, 132), 100: (232_448, 148)}
"""Shared memory that one block may use [B] and multiprocessors, by compute capability (CUDA C++ Programming Guide,
table of technical specifications; multiprocessors of A100, A40, L40S, H200, B200)."""
_OTHER_CHIP = (101_376, 170)


def install(mode: Literal["build", "load"], spec: dict[str, Any]) -> None:
    """Prepares this process for the candidate's module: to compile for spec["arch"], to launch, or to interpret.

    The environment is the child's own clean one; what is set here lasts as long as the child.
    """
    if mode not in ("build", "load"):
        raise ValueError(f"mode must be 'build' or 'load', found {mode!r}")
    chip = _capability(spec.get("arch") or DEFAULT_ARCH)
    if mode == "load" and spec["device"] == "cpu":
        interpreter.enable()
        _set_driver(_stand_in(chip, torch.device("cpu"), _launch_nothing))
        pretend_runtime(_properties(chip), available=False)
        _pretend_in_forward()
        return
    folder = _folder(spec)
    if mode == "load":
        private = Path.cwd() / "triton"
        _seed(folder, private / "cache")
        _use_cache(private / "cache", folder / "stub")
        return
    folder.mkdir(exist_ok=True)
    _use_cache(folder / "cache", folder / "stub")
    pretend_runtime(_properties(chip), available=True)
    Pretend("meta").__enter__()
    launcher = _launch_nothing if spec["device"] == "cpu" else _launching_code(folder)
    _set_driver(_stand_in(chip, torch.device("cuda", 0), launcher))


def _give_up(*_: object) -> None:
    raise TimeoutError(f"forward took longer than {LONGEST_S} s without launching anything")


def precompile(model: Any, get_inputs: Callable[[], Sequence[Any]], spec: dict[str, Any]) -> None:
    """Compiles what one forward call launches, as far as that can be found out without a GPU.

    Writes triton/build.json with the route taken. Raises only what Triton's compiler or ptxas refuses, after
    writing its message to compile_error.txt; everything else is left to the first call on the device.
    """
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import PTXASError

    started = time.perf_counter()
    tuned: list[int] = []
    why = ""
    _tune_by_compiling(tuned)
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(LONGEST_S)
    try:
        with torch.no_grad():
            model(*_weightless(model, get_inputs, dtype_of(spec.get("precision", "fp32"))))
        if any(count > MOST_CONFIGS for count in tuned):
            why = f"a kernel has {max(tuned)} configurations, of which {MOST_CONFIGS} were compiled ahead"
    except (CompilationError, PTXASError) as error:
        Path(spec["products_dir"], "compile_error.txt").write_text(_refusal(error))
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.alarm(0)
    report = {
        "name": "triton",
        "route": ROUTES[bool(why)],
        "compile_s": round(time.perf_counter() - started, 3),
        "fallback_reason": why,
    }
    (_folder(spec) / "build.json").write_text(json.dumps(report))


def resources(products_dir: str) -> dict[str, int]:
    """What the compiled kernels use, the greatest of all: registers per thread, bytes of local memory per thread
    (spill_bytes: spills, and arrays that did not fit), bytes of shared memory per block, and how many kernels.

    Empty where nothing was compiled; registers and spill_bytes are missing where cuobjdump cannot be run.
    """
    cache = Path(products_dir) / "triton" / "cache"
    metadata = [json.loads(path.read_text()) for path in cache.glob("*/*.json") if not path.name.startswith("__grp__")]
    kernels = [entry for entry in metadata if "shared" in entry and "name" in entry]
    if not kernels:
        return {}
    found = {
        "kernels": len({entry["name"] for entry in kernels}),
        "shared_bytes": max(int(entry["shared"]) for entry in kernels),
        "num_warps": max(int(entry["num_warps"]) for entry in kernels),
        "num_stages": max(int(entry["num_stages"]) for entry in kernels),
    }
    usage = [_usage(path) for path in cache.glob("*/*.cubin")]
    for index, name in enumerate(("registers", "spill_bytes")):
        values = [entry[index] for entry in usage if entry is not None]
        if values:
            found[name] = max(values)
    return found


def _usage(cubin: Path) -> tuple[int, int] | None:
    """Registers and bytes of local memory per thread of one binary, by the cuobjdump that Triton brings."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    try:
        text = subprocess.run([tool, "--dump-resource-usage", cubin], capture_output=True, text=True).stdout
    except OSError:
        return None
    found = re.findall(r"REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", text)
    return (max(int(r) for r, _, _ in found), max(int(s) + int(n) for _, s, n in found)) if found else None


def _capability(arch: str) -> int:
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise ValueError(f"arch must be like 'sm_90', found {arch!r}")
    return int(arch.removeprefix("sm_").rstrip("af"))


def _folder(spec: dict[str, Any]) -> Path:
    return Path(spec["products_dir"]).absolute() / "triton"


def _properties(chip: int) -> dict[str, Any]:
    """What torch.cuda.get_device_properties says of such a GPU."""
    shared, multiprocessors = _CHIPS.get(chip, _OTHER_CHIP)
    return {
        "name": f"NVIDIA sm_{chip}",
        "major": chip // 10,
        "minor": chip % 10,
        "multi_processor_count": multiprocessors,
        "shared_memory_per_block_optin": shared,
        "shared_memory_per_multiprocessor": shared + 1024,
        "regs_per_multiprocessor": 65_536,
        "max_threads_per_multi_processor": 2048 if chip in (80, 90, 100) else 1536,
        "warp_size": 32,
        "L2_cache_size": 50 << 20,
        "total_memory": 80 << 30,
    }


def _use_cache(cache: Path, stub: Path) -> None:
    """Triton's cache in this folder; keys are found without hashing Triton's own 400 MB.

    Runners may start no process: so keys name Triton's version and the machine without asking ptxas and `file`, and
    the folder of libcuda is given instead of asked from ldconfig.
    """
    cache.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        "TRITON_CACHE_DIR": str(cache),
        "TRITON_MOCK_PTX_VERSION": f"triton {importlib.metadata.version('triton')}",
        "TRITON_LIBCUDA_PATH": str(stub),
    }
    from triton.runtime import build
    from triton.runtime import cache as triton_cache

    build.platform_key = lambda: f"{platform.system()},{platform.machine()}"
    if hasattr(build, "_get_cache_manager"):  # from Triton 3.8 on keys name folders, and the stub's is moved
        place_of = build._get_cache_manager
        build._get_cache_manager = lambda src, config: place_of(src, {**config, "library_dirs": None})
    record = importlib.metadata.distribution("triton").read_text("RECORD")
    if record:  # the installed files' hashes
        key = hashlib.sha256(record.encode()).hexdigest()
        triton_cache.triton_key = lambda: key


def _seed(folder: Path, cache: Path) -> None:
    """A cache of this process's own in which all that the build compiled is found, at its place in the products.

    The candidate's code could write there too: what is not as Triton writes it is left out.
    """
    for source in (folder / "cache").glob("*/*"):
        place = cache / source.parent.name / source.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.name.startswith("__grp__"):  # names its files by the path that they had in the build
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
                names = json.loads(source.read_text())["child_paths"]
                place.write_text(json.dumps({"child_paths": {name: str(source.parent / name) for name in names}}))
        else:
            place.symlink_to(source)


def _set_driver(driver: Any) -> None:
    from triton.runtime.driver import driver as config

    config.set_active(driver)


def _stand_in(chip: int, device: torch.device, launcher: Callable[[Any, Any], Any]) -> SimpleNamespace:
    """In place of Triton's CUDA driver: one GPU of this kind, on which every launch succeeds and does nothing."""
    from triton.backends.compiler import GPUTarget

    properties = _properties(chip)
    facts = {
        "max_shared_mem": properties["shared_memory_per_block_optin"],
        "max_num_regs": properties["regs_per_multiprocessor"],
        "multiprocessor_count": properties["multi_processor_count"],
        "warpSize": 32,
    }
    utils = SimpleNamespace(
        get_device_properties=lambda device: facts,
        load_binary=lambda name, binary, shared, device: (1, 1, 32, 0, 1024),  # module, function, registers, ...
        unload_module=lambda module: None,
    )
    return SimpleNamespace(
        utils=utils,
        launcher_cls=launcher,
        get_current_device=lambda: 0,
        set_current_device=lambda device: None,
        get_current_stream=lambda device=0: 0,
        get_current_target=lambda: GPUTarget("cuda", chip, 32),
        get_active_torch_device=lambda: device,
        get_device_interface=lambda: torch.cuda,
        get_benchmarker=lambda: lambda call, **_: [0.0, 0.0, 0.0],
    )


def _launch_nothing(source: Any, metadata: Any) -> Callable[..., None]:
    return lambda *_, **__: None


class _Unloaded:
    """In place of a compiled module that only a process with a GPU can load: it has every name."""

    def __getattr__(self, name: str) -> None:
        return None


def _launching_code(folder: Path) -> Callable[[Any, Any], Any]:
    """For the stand-in's launcher_cls: compiles Triton's launch code, which a runner on a GPU will load.

    It is linked against an empty library in place of NVIDIA's, and not loaded here: so no GPU is needed.
    """
    from triton.backends.nvidia import driver
    from triton.runtime import build

    stub = folder / "stub"
    stub.mkdir(exist_ok=True)
    compiler = os.environ.get("CC", "gcc")  # as Triton does
    library = ["-shared", "-o", str(stub / "libcuda.so.1"), "-Wl,-soname,libcuda.so.1"]
    subprocess.run([compiler, "-x", "c", "/dev/null", *library], check=True)
    build._load_module_from_path = lambda name, path: _Unloaded()
    driver.CudaUtils()
    if not hasattr(driver, "make_launcher"):  # from Triton 3.7 on one piece of code launches every kernel
        return _launch_nothing

    def launcher(source: Any, metadata: Any) -> Callable[..., None]:
        driver.CudaLauncher(source, metadata)
        return _launch_nothing(source, metadata)

    return launcher


def _tune_by_compiling(tuned: list[int]) -> None:
    """From now on an autotuned kernel compiles its first configurations and keeps the first that compiles.

    Adds to `tuned` how many configurations each tuned kernel has.
    """
    from triton.runtime.autotuner import Autotuner

    prune = Autotuner.prune_configs

    def first_configs(self: Any, kwargs: dict[str, Any]) -> list[Any]:
        configs = prune(self, kwargs)
        tuned.append(len(configs))
        return configs[:MOST_CONFIGS]

    def compile_only(call: Callable[[], None], **_: Any) -> list[float]:
        call()
        return [0.0, 0.0, 0.0]

    Autotuner.prune_configs = first_configs
    Autotuner.do_bench = staticmethod(compile_only)


def _weightless(model: Any, get_inputs: Callable[[], Sequence[Any]], dtype: torch.dtype) -> list[Any]:
    """Inputs without memory, after the model's own tensors were made so too; both in the run's floating type."""
    if isinstance(model, torch.nn.Module):
        model.to(device="meta", dtype=dtype)
        for module in model.modules():
            for name, value in vars(module).items():
                if isinstance(value, torch.Tensor):
                    setattr(module, name, value.to("meta"))
    with torch.device("meta"):
        values = list(get_inputs())
    tensors = [value.to("meta") if isinstance(value, torch.Tensor) else value for value in values]
    return [
        value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in tensors
    ]


def _pretend_in_forward() -> None:
    """Modules called from now on see CUDA tensors where there are CPU tensors."""
    call = torch.nn.Module.__call__
    depth = [0]

    @functools.wraps(call)
    def pretending(self: Any, *args: Any, **kwargs: Any) -> Any:
        depth[0] += 1
        try:
            with Pretend("cpu") if depth[0] == 1 else contextlib.nullcontext():
                return call(self, *args, **kwargs)
        finally:
            depth[0] -= 1

    torch.nn.Module.__call__ = pretending  # type: ignore[method-assign]


def _refusal(error: Exception) -> str:
    """The compiler's message; its first line says which error."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if "fatal" in line or "error   :" in line), lines[-1] if lines else "")
    place = lines[0] if lines and lines[0].startswith("at ") else "ptxas"
    return f"error: {type(error).__name__} {place} {said.strip()}\n{error}"
