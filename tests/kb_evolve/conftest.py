"""A toy problem whose seed has tunables and a loop, and children that search it on a scripted landscape."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from problems.problem import Problem

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(Path(__file__).parent))  # tests are no package: their helpers are found by their own, longer names

CHILD = """
import sys
import tempfile
sys.path.insert(0, {tests!r})
from toy_makers import toy
from fitness.replay import Failure, Landscape, Replay
from fitness.evaluation import Verdict
from kb_evolve.search import Search

db, arguments = sys.argv[1], eval(sys.argv[2])
landscape = Landscape(**arguments.pop("landscape", {{}}))
outcome = Search(toy(), db=db, run="toy", workbench=Replay(landscape), **arguments).run()
print(outcome.stop, flush=True)
"""


@pytest.fixture(scope="session")
def memory_dir() -> Iterator[Path]:
    """A folder in memory where there is one: databases are synced often, and disks in use are slow."""
    home = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kb-evolve-tests-", dir=home) as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(memory_dir: Path) -> Path:
    """pytest's own fixture, in memory."""
    return Path(tempfile.mkdtemp(dir=memory_dir))


@pytest.fixture(scope="session")
def toy_problem() -> Problem:
    from toy_makers import toy

    return toy()


@pytest.fixture
def start_search() -> Callable[..., subprocess.Popen[str]]:
    """Starts a child that searches the toy problem: `start_search(db, evaluations=60, landscape={...})`."""

    def start(db: Path, **arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", CHILD.format(tests=str(Path(__file__).parent)), str(db), repr(arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                "PYTHONSAFEPATH": "1",
            },
        )

    return start
