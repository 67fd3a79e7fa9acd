"""The Problem noun: a PyTorch program in KernelBench's file format, held as text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


class ProblemError(Exception):
    """A problem that cannot be found, read or understood; says what to do next."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One reference program.

    The source is text: whoever needs `Model`, `get_inputs` or `get_init_inputs` runs it in a child
    process (problems/describe.py, fitness/runner.py), never here.
    """

    id: str
    """How people name it: `rmsnorm`, `level1/19`, or the path of a file."""
    name: str
    """Readable name: `19_ReLU`, `rmsnorm`."""
    source: str
    """The exact text of the file."""
    level: int = 0
    """KernelBench's level, 1 to 4; 0 where there is none."""
    statement: str = ""
    """One line: what a faster kernel could exploit (bundled problems)."""
    seed: str | None = None
    """Source of a correct, naive candidate in C++, where one is bundled."""

    @property
    def sha256(self) -> str:
        """Hex digest of the exact source bytes: the identity under which results are kept."""
        return hashlib.sha256(self.source.encode()).hexdigest()
