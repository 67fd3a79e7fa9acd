"""One evaluation by KernelBench's own evaluator, in a process of its own.

    python -m experiments.bench.kernelbench_child SPEC ANSWER

SPEC and ANSWER are JSON files. KernelBench is imported from the checkout that SPEC names. Packages that it imports
at once but does not need for judging a kernel (clients of language models and the like) are replaced by empty ones
where they are not installed; the answer lists them.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

METADATA_LIMIT = 300
"""Characters kept of each entry of KernelBench's metadata."""


def main(spec_path: str, answer_path: str) -> None:
    """Evaluates one candidate and writes what KernelBench says, with the moment at which it took the device."""
    spec = json.loads(Path(spec_path).read_text(encoding="utf-8"))
    answer: dict[str, Any] = {"stand_ins": provide_missing_packages()}
    sys.path.insert(0, str(Path(spec["kernelbench"]) / "src"))
    from kernelbench import eval as evaluator  # type: ignore[import-not-found]
    from kernelbench import utils

    utils.set_gpu_arch([spec["gpu_arch"]])
    answer["took_device_at"] = started = time.monotonic()
    try:
        answer |= _evaluate(evaluator, spec)
    except Exception as error:  # as KernelBench's scripts do around this call
        traceback.print_exc()
        answer |= {"compiled": False, "correct": False, "metadata": {"other_error": str(error)[:METADATA_LIMIT]}}
    answer["call_s"] = time.monotonic() - started
    Path(answer_path).write_text(json.dumps(answer), encoding="utf-8")


def _evaluate(evaluator: Any, spec: dict[str, Any]) -> dict[str, Any]:
    import torch

    result = evaluator.eval_kernel_against_ref(
        original_model_src=Path(spec["problem_path"]).read_text(encoding="utf-8"),
        custom_model_src=Path(spec["candidate_path"]).read_text(encoding="utf-8"),
        num_correct_trials=spec["correct_trials"],
        num_perf_trials=spec["perf_trials"],
        measure_performance=True,
        build_dir=spec["build_dir"],
        device=torch.device("cuda:0"),
        backend=spec["backend"],
        precision=evaluator.get_torch_dtype_from_string("fp32"),
    )
    if result is None:
        return {
            "compiled": None,
            "correct": None,
            "metadata": {"returned": "None, which its scripts read as: try again"},
        }
    return {
        "compiled": bool(result.compiled),
        "correct": bool(result.correctness),
        "runtime_ms": float(result.runtime),
        "reference_ms": float(result.ref_runtime),
        "metadata": {name: str(value)[:METADATA_LIMIT] for name, value in result.metadata.items()},
    }


def provide_missing_packages() -> list[str]:
    """Puts empty packages in place of those that are not installed here; returns their names."""
    contents: dict[str, dict[str, Any]] = {
        "dotenv": {"load_dotenv": _nothing},
        "tqdm": {"tqdm": _unchanged},
        "openai": {"OpenAI": _nothing},
        "litellm": {"completion": _nothing},
        "requests": {},
        "pydantic": {"BaseModel": Record},
    }
    missing = [name for name in contents if importlib.util.find_spec(name) is None]
    for name in missing:
        package = types.ModuleType(name)
        package.__dict__.update(contents[name])
        sys.modules[name] = package
    return missing


class Record:
    """Enough of pydantic.BaseModel for a result class: annotated fields with defaults, set by keyword."""

    def __init__(self, **values: Any) -> None:
        for name in type(self).__annotations__:
            value = values[name] if name in values else copy.deepcopy(getattr(type(self), name))
            setattr(self, name, value)


def _nothing(*_: Any, **__: Any) -> None:
    """For functions that judging a kernel never needs."""


def _unchanged(items: Any, *_: Any, **__: Any) -> Any:
    return items


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
