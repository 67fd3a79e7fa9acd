"""What tests do to our own processes: find them, strike them at the right moment. For people, needs psutil."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

VICTIM = "kb-victim"
"""How a candidate names its process when it is where a test wants it."""


@contextlib.contextmanager
def attacker(act: Callable[[psutil.Process], None], wanted: Callable[[psutil.Process], bool]) -> Iterator[list[int]]:
    """Waits beside the test for the first process below us that is wanted, and does to it what `act` says."""
    done, struck = threading.Event(), list[int]()

    def hunt() -> None:
        while not done.wait(0.002):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError):
                    if wanted(process):
                        struck.append(process.pid)
                        act(process)
                        return

    thread = threading.Thread(target=hunt, daemon=True)
    thread.start()
    try:
        yield struck
    finally:
        done.set()
        thread.join()


def is_victim(process: psutil.Process) -> bool:
    """Whether it has named itself so."""
    return Path(f"/proc/{process.pid}/comm").read_text().strip() == VICTIM


def is_frozen_victim(process: psutil.Process) -> bool:
    """The same while it is stopped."""
    return is_victim(process) and process.status() == psutil.STATUS_STOPPED


def kill(process: psutil.Process) -> None:
    """For `attacker`."""
    process.kill()


def runs_module(name: str) -> Callable[[psutil.Process], bool]:
    """Whether a process is `python -m name`."""
    return lambda process: name in process.cmdline()


def program(name: str, *, of_judge: bool = False) -> psutil.Process:
    """The judge or zygote below us, or that judge's zygote; the youngest, since other tests may have theirs."""
    parent = program("fitness.judge") if of_judge else psutil.Process()
    return max((child for child in parent.children() if name in child.cmdline()), key=lambda child: child.create_time())
