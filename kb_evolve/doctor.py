"""What this machine can do: device, compilers, backends, sandbox, model keys, database."""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
    yield check_tool("g++", ["--version"], "needed by backend cpp: install it (Debian, Ubuntu: apt install g++)")
    yield dataclasses.replace(
        check_tool("ninja", ["--version"], ""),
        is_fine=True,
        advice="only torch's own load_inline needs it, such as an exported kernel's: pip install ninja",
    )
    yield check_backends()
    yield check_sandbox()
    yield check_keys()
    yield check_database(db)


def check_python() -> Check:
    """Version and platform."""
    return Check("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def check_device() -> Check:
    """Cores, torch, and CUDA devices that torch sees."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check("device", f"torch cannot be imported: {error}", False, "install torch, see README.md")
    found = f"cpu with {len(os.sched_getaffinity(0))} cores ({_cpu_name()}); torch {torch.__version__}"
    for index in range(torch.cuda.device_count()):
        found += f"; cuda:{index} {torch.cuda.get_device_name(index)}"
    return Check("device", found)


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
    """Kernel languages that can be built here."""
    if shutil.which("g++") is None:
        return Check("backends", "none: cpp needs g++", False, "install g++")
    return Check("backends", "cpp")


def check_sandbox() -> Check:
    """The sandbox's level, found by attacking it: a few seconds."""
    from fitness.evaluation import JudgeError
    from fitness.probe import measure
    from fitness.workbench import FENCED_LEVELS

    advice = "a run refuses to start below S2; --sandbox none runs candidates unprotected"
    try:
        probed = measure()
    except (JudgeError, OSError) as error:
        return Check("sandbox", f"could not be probed: {error}", False, advice)
    found = f"level {probed.level}, probed by attack" + "".join(f"; {finding}" for finding in probed.findings)
    if probed.own_user:
        found += "; candidates run as a user of their own"
    return Check("sandbox", found, probed.level in FENCED_LEVELS, advice)


def check_keys() -> Check:
    """Which model keys are set, by name."""
    found = [name for name in MODEL_KEYS if os.environ.get(name)]
    return Check("model keys", ", ".join(found) or "none (the search works without)")


def check_database(db: str) -> Check:
    """SQLite's full integrity check of the file, if there is one."""
    from islands.store import StoreError, open_store

    if not Path(db).exists():
        return Check("database", f"{db} does not exist yet; the first run creates it")
    try:
        with open_store(db, read_only=True) as store:
            broken = store.check()
            count = len(store.runs())
    except StoreError as error:
        return Check("database", str(error), False)
    if broken:
        return Check("database", f"{db} is damaged: {'; '.join(broken[:3])}", False, "restore it from a copy")
    return Check("database", f"{db} is whole and holds {count} runs")
