"""The child that runs a problem's code to describe it: started by problems/child.py, and only by it.

Reads one JSON request from standard input and writes JSON lines to the descriptor it is given: the stage
it is in (so that a hang has a place), then the anatomy, the CPU's peaks and the admission findings, or a
failure.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Tell = Callable[[dict[str, Any]], None]


class NotAProblem(Exception):
    """The problem's code ran, and gave what KernelBench's format does not allow."""


class StageFailed(Exception):
    """The problem's own code failed in a stage; `__cause__` is what it raised."""

    def __init__(self, stage: str, cause: BaseException) -> None:
        super().__init__(stage)
        self.stage = stage
        self.__cause__ = cause

    @property
    def may_be_ours(self) -> bool:
        """Whether the way of running it can be the reason: no memory, or tensors without values."""
        return isinstance(self.__cause__, (MemoryError, RuntimeError, NotImplementedError, TypeError))


@dataclass(frozen=True, slots=True)
class Program:
    """A loaded problem file, with a way to tell which part of it runs."""

    module: types.ModuleType
    tell: Tell

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.tell({"stage": name})
        try:
            yield
        except BaseException as error:
            raise StageFailed(name, error) from error


def main(answer_fd: int) -> None:
    """Answer the request on standard input, then end without running the problem's exit handlers."""
    _contain()
    os.set_inheritable(answer_fd, False)
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_DATA, (request["memory_bytes"],) * 2)
    signal.alarm(int(request["timeout_s"]) + 10)  # where no parent is left to end this process

    def tell(message: dict[str, Any]) -> None:
        line = memoryview(json.dumps(message).encode() + b"\n")
        while line:
            line = line[os.write(answer_fd, line) :]

    try:
        examine(request, tell)
    except StageFailed as failed:
        assert failed.__cause__ is not None
        _print_own_frames(failed.__cause__)
        words = "".join(traceback.format_exception_only(failed.__cause__)).strip()
        tell({"failure": {"stage": failed.stage, "error": words[:1000]}})
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(0)


def examine(request: dict[str, Any], tell: Tell) -> None:
    """Load the file, then tell its anatomy, this CPU's peaks and the admission findings.

    torch is imported after the file was loaded: one that fails at once is refused at once.
    """
    warnings.simplefilter("ignore")
    program = load(request["source"], tell)
    tell({"stage": "importing torch"})
    import torch

    from problems import roofline, tracing
    from problems.anatomy import Anatomy

    with torch.no_grad():
        anatomy = tracing.trace(program)
        tell({"anatomy": anatomy.to_json()})
        tell({"stage": "measuring the CPU"})
        cpu = roofline.measure_cpu()
        tell({"cpu": {"name": cpu.name, "bytes_per_s": cpu.bytes_per_s, "flop_per_s": cpu.flop_per_s}})
        tell({"stage": "admission audit"})
        findings, outcome = tracing.audit(program, anatomy, cpu, request["audit_s"])
    tell({"findings": Anatomy.findings_to_json(findings), "audit": outcome})


def load(source: str, tell: Tell) -> Program:
    """The problem as a module `problem`, from a file of that name so that tracebacks can quote it."""
    Path("problem.py").write_bytes(source.encode())
    module = types.ModuleType("problem")
    module.__file__ = os.path.abspath("problem.py")
    sys.modules["problem"] = module
    program = Program(module, tell)
    with program.stage("importing the file"):
        exec(compile(source, "problem.py", "exec"), module.__dict__)
    return program


def _contain() -> None:
    """Die with the parent, leave no core file, write no large file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 20, 256 << 20))
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG in linux/prctl.h
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


def _print_own_frames(error: BaseException) -> None:
    """Print a traceback without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != "problem.py":
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace, limit=-6, file=sys.stderr)
