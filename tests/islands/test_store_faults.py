"""Every call to the disk fails once, for real: nothing is corrupt, the error is clear, and the command goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import islands_faults as faults
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes calls fail; loaded before libc, it stands between SQLite and the kernel."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc) for the library that makes calls to the disk fail")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "faults.c").write_text(faults.SHIM)
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", "faults.so", "faults.c", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "faults.so"


def sweep(shim: Path, folder: Path, error: str, kinds: int, stride: int, first: int = 1) -> list[dict[str, Any]]:
    """One entry without a fault, then one for every `stride`-th call of these kinds."""
    environment = os.environ | {"LD_PRELOAD": str(shim), "PYTHONPATH": os.pathsep.join([str(ROOT), str(faults.HERE)])}
    numbers = [str(number) for number in (faults.ERRORS[error], kinds, first, stride)]
    command = [sys.executable, str(faults.HERE / "islands_faults.py"), str(folder), *numbers]
    said = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def refuse_harm(found: list[dict[str, Any]]) -> None:
    """What must hold after a fault, whichever call it was."""
    assert "error" not in found[0] and found[0]["calls"] >= 50
    for one in found:
        assert "bug" not in one, one
        words = one.get("error", "")
        assert not words or (words.startswith("/") and ".db" in words and "\n" not in words), one
        assert not words or any(advice in words for advice in ("run the same command again", "kb-evolve db check")), one
        if one["between"]:
            told = one["between"]["told"]
            assert told[: len(one["acknowledged"])] == one["acknowledged"], f"lost: {one}"
            assert one["between"]["findings"] == [], one
        after = one["after"]
        assert one["again"] == {} and after["findings"] == [] and after["logs"], one
        assert after["told"][: len(one["acknowledged"])] == one["acknowledged"], one
        assert after["counted"] == len(set(after["told"])) == faults.STEPS, f"counted twice: {one}"
        assert one["partials"] == [] and one["copy"] == after, one


def test_a_call_that_fails_once_corrupts_nothing_and_the_same_command_goes_on(shim, path):
    found = sweep(shim, path.parent, "EIO", faults.EVERY, stride=83)
    refuse_harm(found)
    assert sum("error" in one for one in found) >= 6


def test_a_full_disk_that_writes_half_a_page_corrupts_nothing_and_the_same_command_goes_on(shim, path):
    found = sweep(shim, path.parent, "ENOSPC", faults.WRITE | faults.RESIZE | faults.TORN, stride=101, first=40)
    refuse_harm(found)
    assert any("the disk is full" in one.get("error", "") for one in found)


def test_a_sync_that_fails_once_corrupts_nothing_and_the_same_command_goes_on(shim, path):
    found = sweep(shim, path.parent, "EIO", faults.SYNC, stride=9)
    refuse_harm(found)
    assert {one["fired"] for one in found} >= {"fdatasync"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "kinds"), [("EIO", faults.EVERY), ("ENOSPC", faults.WRITE | faults.RESIZE | faults.TORN)]
)
def test_each_single_call_may_fail(shim, path, error, kinds):
    found = sweep(shim, path.parent, error, kinds, stride=1)
    refuse_harm(found)
    assert len(found) > 400
