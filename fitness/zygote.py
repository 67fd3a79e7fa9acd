"""The zygote: a process that has imported torch and nothing else, and forks one child per request.

Importing torch (and Triton, for a GPU) costs seconds, forking it costs milliseconds. The zygote runs no candidate
code itself: each child puts on its fence (sandbox.confine) and then calls one entry of fitness/runner.py.

Protocol, on a SOCK_SEQPACKET socket: a request is one JSON datagram with its descriptors attached
({"policy", "entry", "spec"}; descriptor 0 of the list becomes stdout and stderr), the answer {"pid": n}; when a
child ends the zygote sends {"ended": pid, "status": wait status, "max_rss_bytes": n}. At the end of the
socket it kills all children and exits.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from typing import Any

from fitness.sandbox import UNCAUGHT, Policy, adopt_orphans, clean_environment, confine

MAX_REQUEST = 4 << 20
MAX_DESCRIPTORS = 8


def main(descriptor: int, device: str) -> None:
    """Serves requests until the socket closes: so the zygote ends with its parent, however that ends."""
    _import_torch()
    import fitness.runner  # noqa: F401
    import problems.inputs  # noqa: F401

    if device != "cpu":
        with contextlib.suppress(ImportError):
            import triton  # noqa: F401

    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # idle workers of BLAS
    gc.freeze()
    channel = socket.socket(fileno=descriptor)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel.send(json.dumps({"ready": os.getpid()}).encode())
    children: set[int] = set()
    adopt_orphans()
    while True:
        readable, _, _ = select.select([channel.fileno(), wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
            _reap(channel, children)
        if channel.fileno() in readable and not _serve(channel, children):
            break
    _end_all(children)


def _import_torch() -> None:
    """Imports torch with no GPU in sight: while it is imported it looks for one through NVML, whose descriptors a child
    would inherit closed and then find no device."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it would warn that there is none
    import torch.utils.cpp_extension  # noqa: F401

    del os.environ["CUDA_VISIBLE_DEVICES"]
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible


def _serve(channel: socket.socket, children: set[int]) -> bool:
    try:
        message, descriptors, _, _ = socket.recv_fds(channel, MAX_REQUEST, MAX_DESCRIPTORS)
    except ConnectionResetError:
        return False
    if not message:
        return False
    pid = os.fork()
    if pid == 0:
        _child(channel, json.loads(message), descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    children.add(pid)
    channel.send(json.dumps({"pid": pid}).encode())
    return True


def _child(channel: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    """Never returns."""
    status = UNCAUGHT
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        channel.close()
        log, *passed = descriptors
        os.dup2(log, 1)
        os.dup2(log, 2)
        passed = _tidy(passed)
        policy = Policy(**{**request["policy"], "read": tuple(request["policy"]["read"])})
        is_bound = "OMP_PROC_BIND" in os.environ
        environment = clean_environment(policy.private_dir, request["spec"]["threads"], bind_threads=is_bound)
        os.environ.clear()
        os.environ.update(environment)
        confine(policy)
        import fitness.runner

        fitness.runner.ENTRIES[request["entry"]](request["spec"], passed)
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            pass  # the captured output is full
        os._exit(status)


def _tidy(passed: list[int]) -> list[int]:
    """Moves the passed descriptors to 3, 4, ... and closes every other one."""
    high = [os.dup2(descriptor, 400 + index) for index, descriptor in enumerate(passed)]
    placed = [os.dup2(descriptor, 3 + index) for index, descriptor in enumerate(high)]
    devnull = os.open("/dev/null", os.O_RDONLY)
    os.dup2(devnull, 0)
    os.closerange(3 + len(placed), 512)
    return placed


def _reap(channel: socket.socket, children: set[int]) -> None:
    """Reports the children that ended; what they had started falls to us when they end, and is reaped too."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid not in children:
            continue
        children.discard(pid)
        _kill_group(pid)  # whatever the child left in its process group
        note = {"ended": pid, "status": status, "max_rss_bytes": usage.ru_maxrss * 1024}
        channel.send(json.dumps(note).encode())


def _end_all(children: set[int]) -> None:
    """Kills and reaps the children and, round by round, whatever of theirs has fallen to us."""
    for pid in children:
        _kill_group(pid)
    deadline = time.monotonic() + 1.0
    with contextlib.suppress(ChildProcessError, FileNotFoundError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                with open(f"/proc/self/task/{os.getpid()}/children") as file:
                    for pid in map(int, file.read().split()):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.01)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
