"""What OpenEvolve asks of a program: kb_evolve judges it, in processes of its own. Nothing in here runs it.

Needs kb_evolve in the same Python. `judge.json` names backend, device and precision, `problem.py` is the problem.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openevolve.evaluation_result import EvaluationResult

HERE = Path(__file__).resolve().parent
LOG_CHARS = 4000


def evaluate(program_path: str) -> "EvaluationResult":
    """`combined_score` is the speedup over eager PyTorch, 0 for what is not correct.

    Raises RuntimeError when this machine can give no verdict, so that OpenEvolve asks again.
    """
    from openevolve.evaluation_result import EvaluationResult

    options = json.loads((HERE / "judge.json").read_text(encoding="utf-8"))
    named = [text for name, value in options.items() for text in (f"--{name}", value)]
    command = [sys.executable, "-m", "kb_evolve", "eval", program_path, "--problem", str(HERE / "problem.py")]
    command += ["--json", "--no-profile"]
    answer = subprocess.run([*command, *named], capture_output=True, text=True, check=False)
    if answer.returncode not in (0, 1):
        raise RuntimeError(f"kb_evolve gave no verdict: {(answer.stderr or answer.stdout).strip()[-LOG_CHARS:]}")
    found = json.loads(answer.stdout)
    speedup = found.get("speedup") or 0.0
    metrics = {"combined_score": speedup, "speedup": speedup, "correct": float(answer.returncode == 0)}
    if found.get("kernel_ms") is not None:
        metrics["kernel_ms"] = found["kernel_ms"]
    told = {"verdict": found["verdict"], "reason": found["reason"], "log": (found.get("log") or "")[-LOG_CHARS:]}
    return EvaluationResult(metrics=metrics, artifacts={name: text for name, text in told.items() if text})
