"""Fixtures of the tests of islands/: makers of small records, an open store, child processes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from islands.store import Store, open_store

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def make() -> ModuleType:
    """The module makers.py beside this file (tests are no package, so it cannot be imported by name)."""
    spec = importlib.util.spec_from_file_location("islands_makers", HERE / "makers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where a database may be made; in memory where the machine can, because most of a commit is fsync."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder) / "kb.db"


@pytest.fixture
def store(path: Path, make: ModuleType) -> Iterator[Store]:
    """A store that holds the run `demo`."""
    with open_store(path) as opened:
        opened.create_run(make.run())
        yield opened


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `children.py COMMAND ARGUMENTS`; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **options: object) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": f"{HERE.parent.parent}:{HERE}"} | dict(options)
        command = [sys.executable, str(HERE / "children.py"), *map(str, arguments)]
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
