"""Which GPU architectures the compilers here know, by asking them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

from fitness.evaluation import JudgeError

TRITON_LEAST = 80
"""Compute capability 8.0 and newer: Triton's README, section "Compatibility"."""


def of_nvcc(nvcc: str) -> frozenset[str]:
    """`sm_80`, `sm_90`, ...; JudgeError when this nvcc does not run."""
    return frozenset(re.findall(r"\bsm_\d+\b", _answer(nvcc, "--list-gpu-code")))


def of_triton() -> frozenset[str]:
    """The same of the assemblers that Triton brings; JudgeError when one does not run, nothing where it brings none."""
    spec = importlib.util.find_spec("triton")
    places = spec.submodule_search_locations if spec is not None else None
    tools = sorted(Path(places[0], "backends", "nvidia", "bin").glob("ptxas*")) if places else []
    found = {name for tool in tools for name in re.findall(r"\bsm_\d+\b", _answer(str(tool), "--help"))}
    return frozenset(name for name in found if int(name.removeprefix("sm_")) >= TRITON_LEAST)


def in_words(architectures: frozenset[str]) -> str:
    """`sm_80, sm_90, sm_100`."""
    return ", ".join(sorted(architectures, key=lambda name: int(name.removeprefix("sm_"))))


def _answer(tool: str, option: str) -> str:
    try:
        return subprocess.run([tool, option], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise JudgeError(f"{tool} does not work: {error}; see `kb-evolve doctor`") from error
