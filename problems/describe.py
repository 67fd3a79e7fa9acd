"""What a problem is made of, found out in a child process (problems/examine.py)."""

from __future__ import annotations

import dataclasses
from typing import Any

from problems.anatomy import Anatomy, anatomy_from_json, finding_from_json, peaks_from_json
from problems.child import OUTPUT_LIMIT, Transcript, converse
from problems.problem import Problem, ProblemError


def describe(problem: Problem, timeout_s: float = 120.0, memory_bytes: int = 8 << 30, *, audit: bool = True) -> Anatomy:
    """The problem's shapes, costs, floors' ingredients and admission findings.

    Runs the problem's own code in a fresh child process that may use `memory_bytes` of memory and is
    killed, with all its process group, after `timeout_s`. Large problems are traced on fake tensors and
    need no memory. If only the admission audit does not end in time, or without `audit`, the anatomy comes
    without findings and its `audit` says why. Raises ProblemError if the problem's code raises, hangs, exits,
    crashes, prints without end or returns no tensors, with the last lines that it printed.
    """
    request = {
        "source": problem.source,
        "timeout_s": timeout_s,
        "memory_bytes": memory_bytes,
        "audit_s": min(30.0, timeout_s / 3) if audit else 0.0,
    }
    said = converse(request, timeout_s)
    try:
        return _anatomy(said, problem, timeout_s)
    except ValueError as error:
        raise ProblemError(
            f"problem {problem.id}: its child process gave an answer of the wrong form ({error}); "
            f"a problem file must not write to descriptors that it did not open.{_quote(said)}"
        ) from error


def _anatomy(said: Transcript, problem: Problem, timeout_s: float) -> Anatomy:
    answers: dict[str, Any] = {}
    for message in said.answers:
        answers.update(message)
    if "failure" in answers or "anatomy" not in answers:
        raise ProblemError(_complaint(said, answers, problem, timeout_s))
    anatomy = anatomy_from_json(answers["anatomy"])
    audit = answers.get("audit", f"ended early: {said.end or 'no answer'} within {timeout_s:g} s")
    findings = answers.get("findings", [])
    if not isinstance(audit, str) or not isinstance(findings, list):
        raise ValueError("the audit is not a sentence with a list of findings")
    return dataclasses.replace(
        anatomy,
        cpu=peaks_from_json(answers["cpu"]) if "cpu" in answers else None,
        findings=tuple(map(finding_from_json, findings)),
        audit=audit,
    )


def _complaint(said: Transcript, answers: dict[str, Any], problem: Problem, timeout_s: float) -> str:
    """One paragraph: where the problem's code failed, how, what it printed last, what to do."""
    stage = str(answers.get("stage", "starting Python"))[:80]
    failure = answers.get("failure")
    if isinstance(failure, dict):
        stage = str(failure.get("stage"))[:80]
        what = f"{stage} failed: {str(failure.get('error'))[:1000]}"
        is_missing = str(failure.get("error")).startswith("ModuleNotFoundError")
        advice = "Install the package that it imports" if is_missing else "Correct the file"
    elif said.end == "timeout":
        what = f"no description within {timeout_s:g} s, killed in stage {stage}"
        advice = "Correct what does not end, or allow more time"
    elif said.end == "output limit":
        what = f"killed in stage {stage} after printing more than {OUTPUT_LIMIT >> 20} MiB"
        advice = "Take the printing out"
    elif said.end == "answer limit":
        what = f"killed in stage {stage} for writing to a descriptor that it did not open"
        advice = "Correct the file"
    else:
        what = f"its process ended ({said.end}) in stage {stage} before describing itself"
        advice = "Take calls that end the process out, or see whether it runs out of memory"
    return f"problem {problem.id}: {what}. {advice}; expected is KernelBench's file format.{_quote(said)}"


def _quote(said: Transcript) -> str:
    return f" The last lines it printed:\n{said.tail}" if said.tail else ""
