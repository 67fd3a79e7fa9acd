"""Running a problem's own code: a fresh child process, watched, whose answers are JSON lines and not trusted.

The controller never executes a problem file. It starts `python -P -c BOOTSTRAP` in a private directory with
a scrubbed environment and its own process group; the child reads one JSON request from its standard input
and writes JSON lines to a private pipe. What it prints is read and dropped but for the last lines.
"""

from __future__ import annotations

import contextlib
import json
import math
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
    with tempfile.TemporaryDirectory(prefix="kb-problem-", ignore_cleanup_errors=True) as private:
        with open(Path(private) / "request.json", "w+", encoding="utf-8") as asked:
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
    try:
        answers, output, stopped = _read(read_end, child.stdout.fileno(), child, deadline)
    finally:
        _kill_group(child.pid)
        code = child.wait()
        child.stdout.close()
        os.close(read_end)
    tail = output.decode(errors="replace").strip()
    return Transcript(_parse(answers), _printable(tail), stopped or _ending(code))


def _read(
    answer_fd: int, output_fd: int, child: subprocess.Popen[bytes], deadline: float
) -> tuple[bytes, bytes, str]:
    """(all answers, the output's tail, why reading stopped early or "") until both pipes end."""
    answers, tail, printed, closing = b"", b"", 0, math.inf
    with selectors.DefaultSelector() as waiting:
        for fd in (answer_fd, output_fd):
            os.set_blocking(fd, False)
            waiting.register(fd, selectors.EVENT_READ)
        while waiting.get_map():
            if time.monotonic() > deadline:
                return answers, tail, "timeout"
            if closing == math.inf and child.poll() is not None:
                _kill_group(child.pid)
                closing = time.monotonic() + DRAIN_S
            ready = waiting.select(
                min(0.2, max(0.0, deadline - time.monotonic())) if closing == math.inf else 0
            )
            if closing < math.inf and not ready or time.monotonic() > closing:
                break  # a descendant that left the group still holds a pipe
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    waiting.unregister(key.fd)
                elif key.fd == answer_fd:
                    answers += chunk
                else:
                    printed += len(chunk)
                    tail = (tail + chunk)[-TAIL:]
            if len(answers) > ANSWER_LIMIT:
                return b"", tail, "answer limit"
            if printed > OUTPUT_LIMIT:
                return answers, tail, "output limit"
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(max(0.0, min(5.0, deadline - time.monotonic())))
        return answers, tail, ""
    return answers, tail, "timeout"


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


def _printable(text: str) -> str:
    """Text without control characters, so that a child cannot write to the user's terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"
