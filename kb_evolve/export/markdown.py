"""An elite as Markdown, for an issue or a pull request, and the README of a bundle.

Names, reasons and sources come from others: they stand in code spans and fenced blocks only (markup.py).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from islands.candidate import Evaluated
from islands.run import Run
from kb_evolve.export.kernelbench import ExportError, kernelbench_numbers, no_elite
from kb_evolve.export.markup import block, code, is_whole
from kb_evolve.export.whole import write_file
from kb_evolve.report.text import bytes_text, ms_text, number_text, speedup_text
from kb_evolve.standing import is_elite

BASELINES = {"eager": "eager PyTorch"}

HOW = """
The candidate never saw what it was checked on: fresh inputs in every call, {draws} outputs compared element by element
with the problem computed in fp64, within the rounding of {precision}; weights copied by name. Times are those of
{rounds} rounds in which kernel and reference ran on the same input in random order, each in its own process, on the
judge's clock. The interval holds the truth in 95% of cases.
"""

FILES = """
| file | is |
|---|---|
| `elite.py` | the kernel: a class `ModelNew` with the constructor and the forward of the problem's `Model` |
| `problem.py` | the problem, in KernelBench's format |
| `lineage/` | its ancestors, the first kernel first, and what each step changed (`.diff`, the last for `elite.py`) |
| `bundle.json` | ids, parents, mutators and reasons of the elite and its ancestors, and their files' sha256 |
| `evaluations.json` | what the judge said of each, and later measurements of the same program |
| `conversations.json` | prompts and replies that led to them, where a language model wrote them |
| `environment.json` | device, judge, configuration, versions of packages |
| `SHA256SUMS` | checksums of all other files: `sha256sum -c SHA256SUMS` |
"""

CHECK = """
    kb-evolve verify .

judges the kernel again on this machine, in a sandbox, and says whether verdict and speedup agree, differ, or are too
noisy here to tell. Checksums show damage, not lies: whoever made this folder could have written them anew. `verify`
believes nothing in it; the files are read as text and run in the judge's sandbox only. Without kb_evolve, read
`elite.py` before you run it.
"""


def export_markdown(run: Run, history: Sequence[Evaluated], out: str | Path | None) -> str:
    """The summary of the run's elite, written to the file `out` where one is named; of the history it needs the elite.

    ExportError when the run has no correct candidate, WriteError when the file cannot be written.
    """
    elite = next((one for one in history if is_elite(one)), None)
    if elite is None:
        raise ExportError(no_elite(run, history))
    text = summary(run, elite)
    if out is not None:
        write_file(Path(out), text)
    return text


def summary(run: Run, elite: Evaluated) -> str:
    """Problem, device, speedup, how it was verified, the kernel, how to reproduce it."""
    parts = [
        f"## {_claim(run, elite)}",
        _facts(run, elite),
        f"### How it was verified\n{_how(run, elite)}",
        f"### The kernel\n\n{_kernel(elite)}",
        f"### How to reproduce it\n\n{_steps(run)}",
    ]
    return "\n\n".join(parts) + "\n"


def bundle_readme(run: Run, line: Sequence[Evaluated], left_out: int) -> str:
    """What a stranger should know of a bundle: what is claimed, what lies where, how to check it."""
    elite = line[-1]
    parts = [
        f"# {_claim(run, elite)}",
        "This folder holds a kernel that kb_evolve found, where it came from and the evidence for it.",
        _facts(run, elite),
        f"## Check it\n{CHECK.rstrip()}",
        f"## What lies where\n{FILES.rstrip()}",
        f"## How it was verified\n{_how(run, elite)}",
        f"## How it came about\n\n{_descent(line)}",
    ]
    if left_out:
        parts.append(f"{left_out} prompts and replies, the oldest ones, were too long and are left out.")
    return "\n\n".join(parts) + "\n"


def _claim(run: Run, elite: Evaluated) -> str:
    evaluation = elite.evaluation
    speedup = speedup_text(evaluation.speedup, evaluation.speedup_ci)
    return f"{code(run.problem_id)}: {speedup} against {_baseline(elite)}"


def _baseline(elite: Evaluated) -> str:
    name = elite.evaluation.baseline
    return BASELINES.get(name) or code(name)


def _facts(run: Run, elite: Evaluated) -> str:
    evaluation = elite.evaluation
    speedup = speedup_text(evaluation.speedup, evaluation.speedup_ci)
    facts = {
        "problem": f"{code(run.problem_id)}, sha256 {code(run.problem_sha256)}",
        "device": code(evaluation.device_name or run.device),
        "backend, precision": f"{code(run.backend)}, {code(run.precision)}",
        "speedup": f"{speedup} (95% interval) against {_baseline(elite)}",
        "time": f"{ms_text(evaluation.kernel_ms)}, the reference {ms_text(evaluation.reference_ms)}",
        "error": f"{number_text(evaluation.error_ratio)} times the reference's own, both against fp64",
        "memory": f"{bytes_text(evaluation.peak_mem_bytes)} at peak",
        "candidate": f"{code(elite.candidate.id)} of run {code(run.name)}",
        "kernel's sha256": code(elite.candidate.source_sha256),
        "labels": ", ".join(code(label) for label in evaluation.labels) or "none",
    }
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


def _how(run: Run, elite: Evaluated) -> str:
    evaluation = elite.evaluation
    text = HOW.format(draws=evaluation.draws, rounds=evaluation.rounds, precision=code(run.precision))
    kernelbench = {True: "also passes", False: "does not pass", None: "was not asked about"}
    return (
        f"{text}\nJudge {code(evaluation.judge_sha256[:12] or 'unknown')}, protocol {code(evaluation.protocol)}, "
        f"sandbox {code(evaluation.sandbox or 'unknown')}. KernelBench's own rule: it "
        f"{kernelbench[evaluation.kernelbench_correct]}."
    )


def _kernel(elite: Evaluated) -> str:
    source = elite.candidate.source
    if is_whole(source):
        return block(source, "python")
    note = "What is not seen is spelled out here and what is too long is cut; the sha256 above is of the exact text."
    return f"{note}\n\n{block(source, 'python')}"


def _steps(run: Run) -> str:
    words = ["kb-evolve", "eval", "kernel.py", "--problem", run.problem_id, "--backend", run.backend]
    words += ["--precision", run.precision]
    words += ["--kernelbench", "KERNELBENCH"] if kernelbench_numbers(run.problem_id) != (0, 0) else []
    return f"Save the kernel as `kernel.py`, then:\n\n{block(shlex.join(words), 'sh')}"


def _descent(line: Sequence[Evaluated]) -> str:
    """One line for each step, from the first kernel to the elite."""
    rows = []
    for number, one in enumerate(line):
        candidate, evaluation = one.candidate, one.evaluation
        reason = candidate.rationale or ("the first kernel" if candidate.generation == 0 else "no reason given")
        found = speedup_text(evaluation.speedup) if evaluation.speedup else code(evaluation.verdict.value)
        rows.append(f"{number}. {found}: {code(candidate.mutator)}, {code(reason)}")
    return "\n".join(rows)
