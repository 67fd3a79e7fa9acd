"""Running a problem's own code: a fresh child process, watched, whose answers are JSON lines and not trusted.

The controller never executes a problem file. It starts `python -P -c BOOTSTRAP` in a private directory with
a scrubbed environment and its own process group; the child reads one JSON request from its standard input
and writes JSON lines to a private pipe. What it prints is read and dropped but for the last lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import site
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOM = Path(__file__).resolve().parent

BOOTSTRAP = """
import importlib.util as util, sys
spec = util.spec_from_file_location(
    "problems", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]])
sys.modules["problems"] = util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["problems"])
from problems.examine import main
main(int(sys.argv[2]))
"""
"""Loads this very room, wherever it is installed, with nothing of the working directory on sys.path."""

KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""All that the child sees of our environment: what finds and runs torch, no credentials."""

ANSWER_LIMIT = 4 << 20
"""Most bytes of JSON that a child may send."""
OUTPUT_LIMIT = 1 << 30
"""Most bytes that a child may print before it is taken for an endless printer."""
TAIL = 2_000
"""Bytes of a child's output that an error message quotes."""
DRAIN_S = 1.0
"""How long a pipe is read after the child has ended."""


@dataclass(slots=True)
class Transcript:
    """What a child said and how it ended."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    tail: str = ""
    """The last lines that it printed."""
    end: str = ""
    """How it ended: `exit code 0`, `signal SIGSEGV`, `timeout`, `output limit` or `answer limit`."""


def converse(request: dict[str, Any], timeout_s: float) -> Transcript:
    """Run problems/examine.py on a request; every process of its group is dead when this returns."""
    with (
        tempfile.TemporaryDirectory(prefix="kb-problem-", ignore_cleanup_errors=True) as private,
        open(Path(private) / "request.json", "w+", encoding="utf-8") as asked,
    ):
        json.dump(request, asked)
        asked.seek(0)
        return _watch(asked, private, timeout_s)


def _watch(asked: IO[str], private: str, timeout_s: float) -> Transcript:
    deadline = time.monotonic() + timeout_s
    read_end, write_end = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOTSTRAP, str(ROOM), str(write_end)],
            stdin=asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=private, env=_environment(private), pass_fds=(write_end,), start_new_session=True,
        )  # fmt: skip
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    assert child.stdout is not None
    heard = _Heard(read_end, child.stdout.fileno())
    try:
        stopped = _listen(heard, child, deadline)
    finally:
        _kill_group(child.pid)
        code = child.wait()
        child.stdout.close()
        os.close(read_end)
    return Transcript(_parse(heard.answers), _printable(heard.tail), stopped or _ending(code))


@dataclass(slots=True)
class _Heard:
    """What has come through a child's two pipes."""

    answer_fd: int
    output_fd: int
    answers: bytes = b""
    tail: bytes = b""
    printed: int = 0

    def read(self, fd: int) -> bool:
        """Take what a pipe holds; False at its end."""
        chunk = os.read(fd, 1 << 16)
        if fd == self.answer_fd:
            self.answers += chunk
        else:
            self.printed += len(chunk)
            self.tail = (self.tail + chunk)[-TAIL:]
        return bool(chunk)

    def excess(self) -> str:
        if len(self.answers) > ANSWER_LIMIT:
            return "answer limit"
        return "output limit" if self.printed > OUTPUT_LIMIT else ""


def _listen(heard: _Heard, child: subprocess.Popen[bytes], deadline: float) -> str:
    """Read both pipes until they and the child end; why that was given up, or ""."""
    with selectors.DefaultSelector() as waiting:
        for fd in (heard.answer_fd, heard.output_fd):
            waiting.register(fd, selectors.EVENT_READ)
        while waiting.get_map() and child.poll() is None:
            if time.monotonic() > deadline:
                return "timeout"
            if excess := heard.excess():
                return excess
            for key, _ in waiting.select(0.1):
                if not heard.read(key.fd):
                    waiting.unregister(key.fd)
        if child.poll() is not None:
            _kill_group(child.pid)  # what it left behind must not hold the pipes
        closing = time.monotonic() + DRAIN_S
        while waiting.get_map() and time.monotonic() < closing and (ready := waiting.select(0)):
            for key, _ in ready:
                if not heard.read(key.fd):
                    waiting.unregister(key.fd)
    try:
        child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "timeout"
    return heard.excess()


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _environment(private: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)]
    if paths:
        kept["PYTHONPATH"] = os.pathsep.join(paths)
    if site.ENABLE_USER_SITE:
        kept["PYTHONUSERBASE"] = site.getuserbase()
    own = {
        "PYTHONSAFEPATH": "1",
        "PYTHONUTF8": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_WAIT_POLICY": "PASSIVE",
        "HOME": private,
        "TMPDIR": private,
    }
    return kept | own


def _parse(answers: bytes) -> list[dict[str, Any]]:
    """The complete JSON lines that are objects; anything else in the pipe is ignored."""
    parsed = []
    for line in answers.split(b"\n")[:-1]:
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                parsed.append(entry)
    return parsed


def _printable(tail: bytes) -> str:
    """The text of a tail without control characters, so that a child cannot drive the user's terminal."""
    text = tail.decode(errors="replace").strip()
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"
