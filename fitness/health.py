"""Is the device itself in order? A known kernel after an abnormal end; two failures in a row put the device aside.

A crashed candidate can leave a GPU on which everything after it fails (an uncorrectable memory error, a hung context).
Without this check every later candidate would get the blame. The note that a device is put aside outlives the judge;
`release` takes it away.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fitness import nvml
from fitness.children import Child, Zygote
from fitness.evaluation import JudgeError
from fitness.sandbox import state_dir
from fitness.session import private_policy

if TYPE_CHECKING:
    import torch

HEALTHY = "healthy"
DEADLINE_S = 60.0
"""For the first context on a busy machine."""
PAUSE_S = 5.0
"""Between two probes: a killed process has given its device memory back by then."""
_TERMS, _SIDE, _WORDS = 1 << 20, 128, 4 << 20


def known_answers(device: str) -> str:
    """HEALTHY, after a sum, a matrix product and 16 MiB of memory came out exactly right on `device`.

    For a clean child, never the judge itself: a sick device hangs or kills whoever touches it. Raises ArithmeticError
    that says what was wrong, or what torch raises.
    """
    for name, computed, expected in _known_work(device):
        found = computed.cpu()
        wrong = (found != expected).flatten().nonzero().flatten()
        if len(wrong):
            first = int(wrong[0])
            raise ArithmeticError(
                f"{name} on {device}: {len(wrong)} of {found.numel()} elements are wrong; the first, at {first}, must "
                f"be {expected.flatten()[first].item()}, found {found.flatten()[first].item()}"
            )
    return HEALTHY


def starter(zygote: Zygote, device: str, *, fenced: bool) -> Callable[[], Child]:
    """What starts the known kernel on the device, behind a candidate's own fence."""

    def start() -> Child:
        policy = dataclasses.replace(private_policy((), fenced=fenced), gpu=device != "cpu")
        return zygote.spawn("health", {"device": device}, policy)

    return start


def is_healthy(start: Callable[[], Child], deadline_s: float = DEADLINE_S) -> tuple[bool, str]:
    """Whether the known kernel comes out right, and if not what happened.

    `start()` gives a fresh, fenced child that prints the result of `known_answers` as its last line (`starter`).
    """
    child = start()
    try:
        if not child.ended.wait(deadline_s):
            return False, f"the known kernel gave no answer within {deadline_s:g} s"
        said = child.log().strip().splitlines() or ["it printed nothing"]
        if child.status == 0 and said[-1] == HEALTHY:
            return True, ""
        last = next((line for line in reversed(said) if line != HEALTHY), said[-1])
        return False, f"the known kernel's process {child.death()}: {last[:300]}"
    finally:
        child.discard()


def check(device: str, start: Callable[[], Child], *, deadline_s: float = DEADLINE_S, pause_s: float = PAUSE_S) -> None:
    """Returns if the device is in order. For after an abnormal end of a candidate's process.

    Raises JudgeError, and puts the device aside, when the known kernel fails twice in a row.
    """
    is_right, first = is_healthy(start, deadline_s)
    if is_right:
        return
    time.sleep(pause_s)
    is_right, second = is_healthy(start, deadline_s)
    if not is_right:
        put_aside(device, second if second == first else f"{first}; then {second}")
        refuse(device)


def put_aside(device: str, reason: str) -> None:
    """Nothing is measured on the device from now on, by this or any later judge of this user."""
    folder = _folder()
    note = {"device": device, "uuid": _uuid(device), "reason": reason, "since": _now()}
    handle, temporary = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "w") as file:
        json.dump(note, file)
    name = hashlib.sha256((note["uuid"] or device).encode()).hexdigest()[:16]
    os.replace(temporary, folder / f"{name}.json")


def quarantined(device: str) -> str:
    """Since when and why the device is put aside; empty when it is not."""
    for _, note in _notes(device):
        return f"since {note['since']}: {note['reason']}"
    return ""


def refuse(device: str) -> None:
    """Raises JudgeError if the device is put aside: for before a judge starts to work on it."""
    why = quarantined(device)
    if why:
        raise JudgeError(
            f"{device} is put aside {why}. Nothing is lost: the run goes on from here by the same command. Check the "
            f"device (`nvidia-smi`, `dmesg`, a restart), then lift this with `kb-evolve doctor --release {device}`"
        )


def release(device: str) -> bool:
    """Lifts the quarantine; False when there was none."""
    found = [path for path, _ in _notes(device)]
    for path in found:
        path.unlink(missing_ok=True)
    return bool(found)


def _known_work(device: str) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """(name, what the device computes, what it must be): numbers that are exact in every format used, TF32 too."""
    import torch

    numbers = torch.arange(_TERMS, dtype=torch.int64, device=device)
    total = (_TERMS - 1) * _TERMS * (2 * _TERMS - 1) // 6  # sum of squares
    yield "a sum of 2**20 squares", (numbers * numbers).sum().reshape(1), torch.tensor([total])
    rows, columns = torch.arange(_SIDE).reshape(-1, 1), torch.arange(_SIDE).reshape(1, -1)
    left, right = (7 * rows + 3 * columns) % 17 - 8, (5 * rows + 11 * columns) % 13 - 6
    product = left.to(device, torch.float32) @ right.to(device, torch.float32)
    yield "a matrix product", product, (left @ right).float()
    words = torch.arange(_WORDS, dtype=torch.int32)
    pattern = words * -1640531535 - (words << 7)  # wraps around; every bit is 0 and 1 somewhere
    yield "16 MiB of memory", pattern.to(device).clone(), pattern


def _folder() -> Path:
    folder = state_dir() / "put_aside"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _notes(device: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """The notes on this device, by UUID where both are known: numbers of devices change, UUIDs do not."""
    uuid = ""
    for path in sorted(_folder().glob("*.json")):
        unreadable = {"device": device, "uuid": "", "since": "an unknown time", "reason": f"{path} cannot be read"}
        try:
            said = json.loads(path.read_text())
            note = {name: str(said[name]) for name in unreadable}
        except (OSError, ValueError, KeyError, TypeError):
            yield path, unreadable
            continue
        uuid = uuid or _uuid(device)
        if (note["uuid"] == uuid) if note["uuid"] and uuid else note["device"] == device:
            yield path, note


def _uuid(device: str) -> str:
    """The GPU's UUID; empty for the CPU and where the driver is too sick to say."""
    number = re.fullmatch(r"cuda(?::(\d+))?", device)
    if number is not None:
        with contextlib.suppress(JudgeError):
            return nvml.device_uuid(int(number[1] or 0))
    return ""


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
