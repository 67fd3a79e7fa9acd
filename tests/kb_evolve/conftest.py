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

SEED = '''"""Scale a vector: the naive seed."""
import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CFLAGS = ["-O2"]

SOURCE = r"""
#include <cstdint>

constexpr int BLOCK = 4;  // tune: 4 8 16 32 64 128 256 512
constexpr int UNROLL = 4;  // tune: 4 8 16 32 64 128 256 512

extern "C" void scale(const float* x, float* out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        out[i] = x[i] * (BLOCK + UNROLL);
    }
}
"""

library = ctypes.CDLL(
    load_inline("scale", SOURCE, functions=None, no_implicit_headers=True, is_python_module=False,
                extra_cflags=CFLAGS, extra_ldflags=CFLAGS)
)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        address = ctypes.c_void_p
        library.scale(address(x.data_ptr()), address(out.data_ptr()), ctypes.c_int64(x.numel()))
        return out
'''

PROBLEM = """
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 16
"""

CHILD = """
import sys
import tempfile
sys.path.insert(0, {tests!r})
from conftest import toy
from fitness.replay import Failure, Landscape, Replay
from fitness.evaluation import Verdict
from kb_evolve.search import Search

db, arguments = sys.argv[1], eval(sys.argv[2])
landscape = Landscape(**arguments.pop("landscape", {{}}))
outcome = Search(toy(), db=db, run="toy", workbench=Replay(landscape), **arguments).run()
print(outcome.stop, flush=True)
"""


def toy() -> Problem:
    """The toy problem with its seed."""
    return Problem("toy", "toy", PROBLEM, seed=SEED)


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
