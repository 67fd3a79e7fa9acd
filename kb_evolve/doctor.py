"""What this machine can do: device, compilers, backends, sandbox, model keys, database."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kb_evolve import devices

MODEL_KEYS = (
    "ANTHROPIC_API_KEY",
    "AZURE_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "TOGETHERAI_API_KEY",
    "XAI_API_KEY",
)
"""Environment variables in which litellm looks for keys. Only their names are ever read out."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    found: str
    is_fine: bool = True
    """False when a search on this machine cannot work, or would not be safe."""
    advice: str = ""


def examine(db: str) -> Iterator[Check]:
    """Every check, as soon as it is done; the database is only read."""
    yield check_python()
    yield check_device()
    yield from check_gpus()
    yield check_tool("g++", ["--version"], "needed by backend cpp: install it (Debian, Ubuntu: apt install g++)")
    yield dataclasses.replace(
        check_tool("ninja", ["--version"], ""),
        is_fine=True,
        advice="only torch's own load_inline needs it, such as an exported kernel's: pip install ninja",
    )
    yield check_nvcc()
    yield check_triton()
    yield check_nvrtc()
    yield check_ncu()
    yield check_backends()
    yield check_sandbox()
    yield check_keys()
    yield check_database(db)


def check_python() -> Check:
    """Version and platform."""
    return Check("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def check_device() -> Check:
    """Cores and torch."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check("device", f"torch cannot be imported: {error}", False, "install torch, see README.md")
    return Check("device", f"cpu with {len(os.sched_getaffinity(0))} cores ({_cpu_name()}); torch {torch.__version__}")


def check_gpus() -> Iterator[Check]:
    """One check for each GPU, or one that says that there is none."""
    from fitness.health import quarantined

    found = devices.gpus()
    if not found:
        yield Check("gpu", "none that the NVIDIA driver shows; CUDA_VISIBLE_DEVICES may hide some")
    built_for = devices.torch_cuda()
    for gpu in found:
        why = quarantined(f"cuda:{gpu.index}")
        if why:
            advice = f"check the card, then lift this with `kb-evolve doctor --release cuda:{gpu.index}`"
            yield Check(f"cuda:{gpu.index}", f"{gpu.name}, put aside {why}", False, advice)
            continue
        driver = devices.driver_version()
        facts = [gpu.name, f"{gpu.memory_bytes / 2**30:.0f} GiB", f"compute capability {_dotted(gpu)} ({gpu.arch})"]
        facts += [f"driver {driver}"] if driver else []
        advice = "the installed torch is built without CUDA: see https://pytorch.org/get-started/locally"
        yield Check(
            f"cuda:{gpu.index}",
            ", ".join(facts) + ("" if built_for else "; torch cannot use it"),
            built_for is not None,
            "" if built_for else advice,
        )


def _dotted(gpu: devices.Gpu) -> str:
    return ".".join(map(str, gpu.capability))


def check_nvcc() -> Check:
    """Where nvcc is and its version, or where it was looked for."""
    from fitness.backends.cuda import INSTALL_NVCC

    path = devices.nvcc_path()
    if path is None:
        home = os.environ.get("CUDA_HOME", "not set")
        return Check("nvcc", f"not found (CUDA_HOME is {home}), needed by backend cuda; {INSTALL_NVCC}")
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check("nvcc", f"{path} does not work: {error}; backend cuda needs it")
    release = re.search(r"release ([\d.]+)", answer.stdout)
    return Check("nvcc", f"{path}, CUDA {release[1] if release else 'of an unknown version'}")


def check_nvrtc() -> Check:
    """The version of cuda-core, and whether what it needs is there."""
    advice = "only for kernels that use NVRTC: pip install 'cuda-core[cu13]' (cu12 for CUDA 12)"
    if devices.has_package("cuda.core") and not devices.has_nvrtc():
        return Check("cuda-core", f"is of no use without cuda-bindings; {advice}")
    return check_package("cuda-core", "cuda.core", advice)


def check_package(name: str, module: str, advice: str) -> Check:
    """The version of an optional package."""
    if not devices.has_package(module):
        return Check(name, f"not installed; {advice}")
    try:
        return Check(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check(name, "of an unknown version")


def check_triton() -> Check:
    """Triton's version, and which are known to work: others are not refused."""
    from fitness.backends import TRITONS

    check = check_package("triton", "triton", "needed by backend triton: pip install triton")
    if not devices.has_package("triton"):
        return check
    told = devices.triton_doubt() or f"known to work: {', '.join(TRITONS)}"
    return dataclasses.replace(check, found=f"{check.found}; {told}")


def check_ncu() -> Check:
    """Whether Nsight Compute is here and may read counters, for experiments/bench/profile.py; the judge needs none."""
    path = shutil.which("ncu")
    if path is None:
        return Check("ncu", "not found on PATH: only experiments.bench.profile would use it", True)
    permitted = {True: "permitted", False: "refused", None: "perhaps permitted: the driver does not say"}
    advice = "let the administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0"
    found = f"{path}, for experiments.bench.profile; counters are {permitted[devices.counters_are_permitted()]}"
    return Check("ncu", found, True, advice)


def _cpu_name() -> str:
    """The processor's model name; its architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def check_tool(name: str, arguments: list[str], advice: str) -> Check:
    """The first line of a program's version; a No where it is missing or fails."""
    path = shutil.which(name)
    if path is None:
        return Check(name, "not found on PATH", False, advice)
    try:
        answer = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Check(name, f"{path} does not work: {error}", False, advice)
    return Check(name, (answer.stdout.splitlines() or ["?"])[0])


def check_backends() -> Check:
    """What can be built, verified and timed here, by kernel language."""
    has_compiler = shutil.which("g++") is not None
    gpu = bool(devices.gpus()) and devices.torch_cuda() is not None
    here = {
        "cpp": "builds, verifies, times" if has_compiler else "no g++",
        "cuda": _cuda_here(gpu, has_compiler),
        "triton": _triton_here(gpu),
    }
    found = "; ".join(f"{name}: {what}" for name, what in here.items())
    return Check("backends", found, has_compiler, "" if has_compiler else "install g++")


def _cuda_here(gpu: bool, has_compiler: bool) -> str:
    nvcc = devices.nvcc_path()
    if nvcc is None or not has_compiler or not _works(nvcc):
        only = "no g++" if not has_compiler else "no nvcc that works" if nvcc else "no nvcc"
        return f"{only}, so NVRTC only" if devices.has_nvrtc() else only
    return "builds, verifies, times" if gpu else "builds only, no GPU"


def _works(nvcc: str) -> bool:
    from fitness.evaluation import JudgeError
    from kb_evolve import architectures

    try:
        architectures.of_nvcc(nvcc)
    except JudgeError:
        return False
    return True


def _triton_here(gpu: bool) -> str:
    if not devices.has_package("triton"):
        return "not installed"
    return "builds, verifies, times" if gpu else "builds and verifies by its interpreter, no GPU"


def check_sandbox() -> Check:
    """The sandbox's level, found by attacking it: a few seconds."""
    from fitness.evaluation import JudgeError
    from fitness.probe import measure
    from fitness.workbench import FENCED_LEVELS

    advice = "a run refuses to start below S2; --sandbox none runs candidates unprotected"
    gpu = bool(devices.gpus()) and devices.torch_cuda() is not None
    try:
        probed = measure(gpu=gpu)
    except (JudgeError, OSError) as error:
        return Check("sandbox", f"could not be probed: {error}", False, advice)
    how = "probed by attack" + (", also with CUDA inside" if gpu else "")
    found = f"level {probed.level}, {how}" + "".join(f"; {finding}" for finding in probed.findings)
    if probed.own_user:
        found += "; candidates run as a user of their own"
    return Check("sandbox", found, probed.level in FENCED_LEVELS, advice)


def check_keys() -> Check:
    """Which model keys are set, by name."""
    found = [name for name in MODEL_KEYS if os.environ.get(name)]
    return Check("model keys", ", ".join(found) or "none (the search works without)")


def check_database(db: str) -> Check:
    """A look at everything in the file, if there is one: pages, checksums, histories, who holds a run."""
    if not devices.has_package("sqlite_utils"):
        return Check("database", "cannot be read without sqlite-utils; eval, baseline and problems need none")
    from islands.database import StoreError
    from islands.integrity import examine as examine_database

    if not Path(db).exists():
        return Check("database", f"{db} does not exist yet; the first run creates it")
    advice = f"put a backup back: kb-evolve db restore BACKUP --db {db}"
    try:
        health = examine_database(Path(db))
    except StoreError as error:
        return Check("database", str(error), False, advice)
    if health.findings:
        return Check("database", f"{db} is damaged: {'; '.join(health.findings[:3])}", False, advice)
    counts = ", ".join(f"{health.rows[table]} {table}" for table in ("runs", "candidates", "evaluations"))
    return Check("database", "; ".join((f"{db} is whole and holds {counts}", *health.notes)))
