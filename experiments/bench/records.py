"""What the measuring scripts share: kernel files, rows that survive a kill, facts about the machine, a GPU's load."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from fitness import nvml
from fitness.evaluation import PROTOCOL, JudgeError
from fitness.machine import device_name, judge_sha256

KERNELBENCH_KERNELS = Path(__file__).parent.parent / "kernels" / "kernelbench"
_FIELD = re.compile(r"^(Problem|Backend|Kind): (\S+)$", re.MULTILINE)
_MARK = re.compile(r"(//|#) candidate$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class KernelFile:
    """One candidate on disk, with what its docstring says about it."""

    name: str
    problem: str
    backend: str
    kind: str
    source: str

    def variant(self, mark: str) -> str:
        """The same program under another content hash, so that no cache holds it yet.

        The mark goes into the comment `candidate`, which stands inside the kernel: also what is hashed for
        each extension or Triton function differs.
        """
        return _MARK.sub(lambda found: f"{found[0]} {mark}", self.source, count=1) + f"\n# candidate {mark}\n"


def kernel_files(folder: Path) -> list[KernelFile]:
    """The kernel files of a folder by name; click.ClickException when one lacks a line of its docstring."""
    found = []
    for path in sorted(folder.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        fields = dict(_FIELD.findall(source))
        if missing := {"Problem", "Backend", "Kind"} - fields.keys():
            raise click.ClickException(f"{path}: its docstring must have lines {', '.join(sorted(missing))}: VALUE")
        found.append(KernelFile(path.stem, fields["Problem"], fields["Backend"], fields["Kind"], source))
    if not found:
        raise click.ClickException(f"no kernel files in {folder}; expected NAME.py with a docstring")
    return found


def chosen(files: list[KernelFile], names: tuple[str, ...]) -> list[KernelFile]:
    """Those named, in that order; click.ClickException for an unknown name."""
    known = {file.name: file for file in files}
    if unknown := [name for name in names if name not in known]:
        raise click.ClickException(f"unknown kernel {unknown[0]!r}; known are {', '.join(known)}")
    return [known[name] for name in names]


def about(device: str) -> dict[str, Any]:
    """Machine, date (UTC), versions and the judge's own digest."""
    return {
        "cpu": device_name(),
        "gpu": _answer("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "device": device,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "triton": _version("triton"),
        "nvcc": _answer("nvcc", "--version").splitlines()[-1:],
        "judge_sha256": judge_sha256(),
        "protocol": PROTOCOL,
    }


def environment(device: str) -> dict[str, str]:
    """Ours, with `cuda:N` as the only GPU: for a child process that knows only its first one."""
    root = Path(__file__).resolve().parent.parent.parent
    index = device.partition(":")[2] or "0"
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    visible = seen.split(",")[int(index)] if seen else index
    return {**os.environ, "PYTHONPATH": str(root), "CUDA_VISIBLE_DEVICES": visible}


def read(path: Path) -> dict[str, Any]:
    """The document so far; empty where there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def rows(path: Path, section: str) -> list[dict[str, Any]]:
    """What `add_row` put into a section so far."""
    return list(read(path).get(section, {}).values())


def add_row(path: Path, section: str, key: str, row: dict[str, Any]) -> None:
    """Stores a row under its key at once; several processes may write to the same file."""
    with _changing(path) as document:
        document.setdefault(section, {})[key] = row


def set_fields(path: Path, **fields: Any) -> None:
    """Stores whole fields of the document: `about`, `definitions`, `summary`."""
    with _changing(path) as document:
        document.update(fields)


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[dict[str, Any]]:
    """The document to be changed and written back; the folder's lock keeps other processes out meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        document = read(path)
        yield document
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    finally:
        os.close(folder)


class GpuBusy:
    """Seconds in which a GPU had work, from NVML's utilisation, between entering and leaving the context.

    NVML says for what share of its last sampling period (1/6 to 1 s) a kernel was running; this is integrated
    over time. `seconds` is None where there is no NVML.
    """

    _PERIOD_S = 0.05

    def __init__(self, device: str) -> None:
        self.seconds: float | None = None
        self._gpu: nvml.Gpu | None = None
        with contextlib.suppress(JudgeError):
            if device.startswith("cuda"):
                self._gpu = nvml.Gpu(int(device.partition(":")[2] or 0))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> GpuBusy:
        if self._gpu is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._gpu is not None:
            self._ended.set()
            self._thread.join()

    def _watch(self) -> None:
        assert self._gpu is not None
        seconds, last = 0.0, time.monotonic()
        while not self._ended.wait(self._PERIOD_S):
            percent, now = self._gpu.busy_percent(), time.monotonic()
            seconds, last = seconds + (now - last) * (percent or 0) / 100, now
        self.seconds = seconds


def _answer(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
