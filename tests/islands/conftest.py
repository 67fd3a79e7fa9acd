"""Fixtures of the tests of islands/: makers of small records, an open store, child processes."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from islands.population import Population, PopulationConfig
from islands.store import Store, open_store

HERE = Path(__file__).parent
sys.path.append(str(HERE))  # tests are no package: their helpers are found by their own, longer names

import islands_children  # noqa: E402
import islands_makers  # noqa: E402


@pytest.fixture(scope="session")
def make() -> ModuleType:
    """The functions of islands_makers.py."""
    return islands_makers


@pytest.fixture(scope="session")
def children() -> ModuleType:
    """The functions of islands_children.py, for `fork`."""
    return islands_children


@pytest.fixture
def grow(make: ModuleType) -> Callable[..., Population]:
    """Builds a population that was told (number, speedup, changes) in this order."""

    def build(told: Any, **config: Any) -> Population:
        population = Population(PopulationConfig(**config), "run00000", 7)
        for number, speedup, *changes in told:
            changes = {"island": number % population.config.islands} | (changes[0] if changes else {})
            population.tell(make.evaluated(number, speedup, **changes))
        return population

    return build


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where a database may be made; in memory where the machine can, because most of a commit is fsync."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder) / "kb.db"


@pytest.fixture
def closed(path: Path, make: ModuleType) -> Path:
    """A database that holds the run `demo` and that nobody has open."""
    with open_store(path) as opened:
        opened.create_run(make.run())
    return path


@pytest.fixture
def store(closed: Path) -> Iterator[Store]:
    """A store that holds the run `demo`."""
    with open_store(closed) as opened:
        yield opened


class Child:
    """A forked process that runs one function; its standard input and output are ours.

    A process that has a SQLite file open must not fork, so fork first and open afterwards.
    """

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        ours, theirs = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(theirs[0], 0)
            os.dup2(ours[1], 1)
            os.closerange(3, 256)
            self._run(function, *arguments)
        os.close(ours[1])
        os.close(theirs[0])
        self.said = os.fdopen(ours[0])
        self._input = theirs[1]
        self.status: int | None = None

    @staticmethod
    def _run(function: Callable[..., None], *arguments: Any) -> NoReturn:
        try:
            function(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal; does not wait."""
        os.kill(self.pid, number)

    def end(self) -> str:
        """Closes its input, waits for its end and returns the rest of what it said."""
        if self.status is None:
            os.close(self._input)
            rest = self.said.read()
            self.said.close()
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return rest
        return ""


@pytest.fixture
def fork() -> Iterator[Callable[..., Child]]:
    """Runs a function in a child process; whatever still runs at the end is killed."""
    started: list[Child] = []

    def start(function: Callable[..., None], *arguments: Any) -> Child:
        started.append(Child(function, *arguments))
        return started[-1]

    yield start
    for child in started:
        if child.status is None:
            child.kill()
            child.end()
