"""Each strike as a candidate's source, in its forward call or while it is built, with the verdicts that it may get."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)

def get_inputs():
    return [torch.rand(16, 256)]

def get_init_inputs():
    return []
"""

_MODEL = """

import json

SPEC.update(json.loads({spec!r}), pid=os.getpid())


def report(found):
    if found:
        raise RuntimeError("BREACH: " + ", ".join(found))


import torch

{at_import}

class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        {in_forward}
        return torch.tanh(x)
"""

MODES = ("run", "build")
CORRECT = frozenset({"correct"})
STOPPED = frozenset({"out_of_memory", "runtime_error", "timeout"})
"""A slow machine may reach the time limit first."""
FAILED = frozenset({"runtime_error", "load_error", "contract"})
ANY_FAILURE = STOPPED | FAILED


@dataclass(frozen=True, slots=True)
class Case:
    """One strike and what the judge may say of the candidate; a verdict outside of it is a finding."""

    strike: str
    run: frozenset[str]
    build: frozenset[str]
    every_call: bool = False

    def verdicts(self, mode: str) -> frozenset[str]:
        return self.run if mode == "run" else self.build


CASES = (
    Case("whatever_is_refused", CORRECT, CORRECT),
    Case("read_secrets", CORRECT, CORRECT),
    Case("write_outside", CORRECT, CORRECT),
    Case("change_metadata", CORRECT, CORRECT),
    Case("open_sockets", CORRECT, CORRECT),
    Case("kill_everything", CORRECT, CORRECT),
    Case("kill_all", CORRECT | FAILED, CORRECT | FAILED),
    Case("trace_judge", CORRECT, CORRECT),
    Case("slow_others", CORRECT, CORRECT),
    Case("process_controls", CORRECT, CORRECT),
    Case("poison_modules", CORRECT, CORRECT),
    Case("rewrite_itself", FAILED, CORRECT | FAILED),
    Case("install_package", CORRECT, CORRECT | {"timeout"}),
    Case("fork_thousand", CORRECT, CORRECT | STOPPED | FAILED),
    Case("daemonise", CORRECT, CORRECT),
    Case("fill_memory_fast", STOPPED, STOPPED | FAILED),
    Case("fill_memory_slowly", STOPPED, STOPPED | FAILED),
    Case("fill_shared_memory", STOPPED | {"no_verdict"}, STOPPED | FAILED | {"no_verdict"}),
    Case("fill_memory_files", STOPPED | {"no_verdict"}, STOPPED | FAILED | {"no_verdict"}),
    Case("fill_thread_stacks", STOPPED | CORRECT, STOPPED | FAILED),
    Case("leak_per_call", STOPPED, CORRECT, every_call=True),
    Case("fill_disk_one_file", STOPPED, STOPPED | FAILED),
    Case("fill_disk_many_files", STOPPED, STOPPED | FAILED),
    Case("fill_disk_deleted_files", STOPPED, STOPPED | FAILED),
    Case("fill_inodes", STOPPED, STOPPED | FAILED),
    Case("bury_files", CORRECT | FAILED, CORRECT | FAILED),
    Case("flood_stdout", FAILED, FAILED),
    Case("flood_stderr", FAILED, FAILED),
    Case("close_descriptors", FAILED | {"timeout"}, CORRECT | FAILED),
    Case("duplicate_descriptors", ANY_FAILURE | CORRECT, CORRECT | FAILED),
    Case("write_garbage", FAILED, CORRECT | FAILED),
    Case("stop_itself", frozenset({"timeout"}), frozenset({"timeout"})),
    Case("ignore_signals", frozenset({"timeout"}), frozenset({"timeout"})),
)
BY_NAME = {case.strike: case for case in CASES}


def honest(tag: str) -> str:
    """A harmless candidate; `tag` makes its source, and so its build, a new one."""
    return _candidate("# " + tag, {}, "", "")


def source(case: Case, mode: str, spec: dict[str, Any]) -> str:
    """The candidate that strikes in its first forward call, or whenever its module is executed for a build."""
    strikes = Path(__file__).with_name("strikes.py").read_text()
    if mode == "build":
        return _candidate(strikes, spec, f"if os.path.isdir('products'):\n    report({case.strike}())", "")
    when = "" if case.every_call else "if self.calls == 1: "
    return _candidate(strikes, spec, "", f"{when}report({case.strike}())")


def _candidate(head: str, spec: dict[str, Any], at_import: str, in_forward: str) -> str:
    body = _MODEL.format(spec=json.dumps(spec), at_import=at_import, in_forward=in_forward or "pass")
    if not spec:
        body = body.replace("SPEC.update", "import os\nSPEC = {}\nSPEC.update")
    return head + body
