"""Kernels in the lean form and tickets around them, for the tests of this room."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated, Ticket

sys.path.append(str(Path(__file__).parent))  # helper modules beside the tests are found by their own names

FRAME = '''"""A kernel."""
import ctypes

CFLAGS = {flags}

SOURCE = r"""
{cpp}"""

library = ctypes.CDLL(load_inline("kernel", SOURCE, functions=None, extra_cflags=CFLAGS, extra_ldflags=CFLAGS))


class ModelNew:
    def forward(self, x, y):
        out = torch.empty_like(x)
        library.kernel(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()),
                       ctypes.c_void_p(out.data_ptr()), ctypes.c_int64(x.shape[0]), ctypes.c_int64(x.shape[1]))
        return out
'''


@pytest.fixture
def lean() -> Callable[..., str]:
    """`lean(cpp, flags)`: the text of a candidate in the lean form."""
    return lambda cpp, flags='["-O2"]': FRAME.format(cpp=cpp, flags=flags)


def make_evaluated(source: str, number: int = 0, kernel_ms: float | None = 1.0, mutator: str = "seed") -> Evaluated:
    """A candidate with a correct evaluation, or with a wrong result where kernel_ms is None."""
    candidate = Candidate(f"run-{number:06d}", number, 0, 0, "cpp", source, mutator=mutator)
    times = {}
    if kernel_ms is not None:
        ci = (kernel_ms, kernel_ms)
        times = {"kernel_ms": kernel_ms, "kernel_ms_ci": ci, "reference_ms": 1.0, "speedup": 1 / kernel_ms,
                 "speedup_ci": ci}  # fmt: skip
    verdict = Verdict.CORRECT if times else Verdict.WRONG_RESULT
    return Evaluated(candidate, Evaluation(verdict, "", "p", "cpp", candidate.source_sha256, **times))


@pytest.fixture
def evaluated() -> Callable[..., Evaluated]:
    return make_evaluated


@pytest.fixture
def ticket() -> Callable[..., Ticket]:
    """`ticket(parent, seed, inspirations, lineage)`."""

    def make(parent, seed="1", inspirations=(), lineage=()) -> Ticket:
        return Ticket(7, 0, seed, parent, tuple(inspirations), tuple(lineage))

    return make


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    """A journal in a file (llm_makers.FileJournal)."""
    from llm_makers import FileJournal

    return FileJournal(tmp_path / "journal.jsonl")


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The key of the scripted server, in the environment."""
    from llm_makers import KEY

    monkeypatch.setenv("SCRIPTED_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return KEY
