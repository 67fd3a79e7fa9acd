"""Judging a bundle's elite again, and saying whether what is claimed of it holds here."""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from fitness.evaluation import Evaluation, Job, Verdict
from islands.elite import pooled
from kb_evolve.annotate import annotate
from kb_evolve.config import Config, resolve
from kb_evolve.export.opened import Bundle, known_problem
from kb_evolve.export.sealed import BundleError
from kb_evolve.judging import Bench, make_job
from problems.problem import ProblemError

RIGHT = (Verdict.CORRECT, Verdict.VERIFIED)
STACK = ("torch", "triton")
"""Packages whose versions change times: the reference's, or the kernel's."""
OWN_LOAD = 2
"""What judging itself adds to the load average."""
TRIES = 3
"""Judgements at most, while there is no verdict."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What judging again says of a bundle."""

    agrees: bool | None
    """None: this machine cannot say."""
    reason: str
    """One sentence with numbers."""
    notes: tuple[str, ...]
    """What else differs between there and here."""
    here: Evaluation

    def to_json(self, bundle: Bundle) -> dict[str, Any]:
        """The machine's version: `claimed` and `here` have the names that `kb-evolve eval --json` prints."""
        return {
            "bundle": str(bundle.path),
            "bundle_sha256": bundle.sha256,
            "problem": bundle.problem.id,
            "problem_sha256": bundle.problem.sha256,
            "run": bundle.run_name,
            "candidate": bundle.candidate_id,
            "source_sha256": bundle.claim.source_sha256,
            "agrees": self.agrees,
            "reason": self.reason,
            "notes": list(self.notes),
            "claimed": bundle.claim.to_json(),
            "here": self.here.to_json(),
        }


def config_of(bundle: Bundle, *, device: str | None, arch: str | None, sandbox: str | None) -> Config:
    """How the bundle is judged here: its backend, precision and limits, this machine's device and sandbox."""
    device = device or (bundle.device if bundle.device == "cpu" and bundle.backend == "cpp" else "")
    run = {"backend": bundle.backend, "precision": bundle.precision, "device": device, "arch": arch or ""}
    return resolve({"run": run, "judge": {**bundle.judge, **({"sandbox": sandbox} if sandbox else {})}})


def rejudge(bundle: Bundle, bench: Bench, config: Config) -> Answer:
    """Judges the elite on the workbench and compares. `config` comes from `config_of`, with its device filled in.

    A judgement that other load of the machine disturbed is made again, TRIES in all. Where only the speedup differs, a
    second judgement is pooled with the first (islands.elite.pooled: what scatters more than its intervals say gets a
    wider one) before the answer is no. BundleError when the problem's own code fails.
    """
    job = dataclasses.replace(make_job(bundle.problem, bundle.source, config), fresh=True)
    is_only_built = job.backend == "cuda" and job.device == "cpu"
    try:
        here = _judge(bench, job, 1 if is_only_built else TRIES)
        if here.is_correct and not compare(bundle.claim, here)[0]:
            again = _judge(bench, job, TRIES)
            if again.verdict is not Verdict.NO_VERDICT:
                here = pooled([here, again]) if again.is_correct else again
    except ProblemError as error:
        raise BundleError(f"the problem of {bundle.path} cannot be judged: {error}") from error
    agrees, reason = compare(bundle.claim, here)
    return Answer(agrees, reason, tuple(_notes(bundle, here)), here)


def _judge(bench: Bench, job: Job, tries: int) -> Evaluation:
    """The first judgement with a verdict, of at most `tries`; else the last one."""
    for _ in range(tries):
        here = annotate(bench.evaluate(job), job)
        if here.verdict is not Verdict.NO_VERDICT:
            break
    return here


def compare(claim: Evaluation, here: Evaluation) -> tuple[bool | None, str]:
    """Whether two judgements of one correct kernel agree, and a sentence that says in what.

    Speedups of one device agree when their 95% intervals overlap, or when the logarithms differ by no more than the
    joint error, the root of the sum of the squares of the half-widths that lie between them. None where there is no
    verdict here.
    """
    if here.verdict is Verdict.NO_VERDICT:
        return None, f"there is no verdict here: {here.reason}"
    if here.verdict not in RIGHT:
        return False, f"claimed correct, here {here.verdict}: {here.reason}"
    if here.speedup is None or here.speedup_ci is None:
        return True, f"the verdict agrees: {here.reason}"
    figures = f"{_figure(claim)} claimed, {_figure(here)} here"
    if claim.device_name != here.device_name:
        return True, (
            f"the verdict agrees; speedups of different devices are not compared: {figures}, "
            f"on {claim.device_name or 'an unnamed device'} and {here.device_name}"
        )
    if claim.baseline != here.baseline:
        return True, f"the verdict agrees; the baselines differ ({claim.baseline}, {here.baseline}): {figures}"
    if _overlap(claim, here):
        return True, f"verdict and speedup agree: {figures}"
    factor = here.speedup / _speedup(claim)
    word = "faster" if factor > 1 else "slower"
    return False, f"the verdict agrees, the speedup does not: {figures}, {abs(factor - 1):.1%} {word} than claimed"


def _overlap(claim: Evaluation, here: Evaluation) -> bool:
    """Whether the two intervals meet, or the estimates differ by no more than their joint error."""
    low, high = sorted((claim, here), key=_speedup)
    above, below = _interval(low)[1], _interval(high)[0]
    apart = math.log(_speedup(high) / _speedup(low))
    joint = math.hypot(math.log(above / _speedup(low)), math.log(_speedup(high) / below))
    return above >= below or apart <= joint


def _notes(bundle: Bundle, here: Evaluation) -> list[str]:
    """What differs there and here, and may explain a difference."""
    claim = bundle.claim
    notes = [_problem_note(bundle)]
    if here.judge_sha256 != claim.judge_sha256 or here.protocol != claim.protocol:
        notes.append(
            f"another judge: {claim.judge_sha256[:12] or 'not recorded'}, protocol {claim.protocol[:20]} there; "
            f"{here.judge_sha256[:12] or 'not named'}, protocol {here.protocol} here"
        )
    for package in STACK:
        there, ours = bundle.packages.get(package, ""), _version(package)
        if there and ours and there != ours:
            notes.append(f"another {package}: {there} where the bundle was written, {ours} here")
    if here.sandbox != claim.sandbox:
        notes.append(f"another sandbox: {claim.sandbox or 'not recorded'} there, {here.sandbox} here")
    if bundle.backend == "cpp":
        notes.append(_load_note())
    return [note for note in notes if note]


def _load_note() -> str:
    """Whether other programs want the CPUs: a kernel with threads then suffers more than a reference with fewer."""
    load, cpus = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load <= cpus + OWN_LOAD:
        return ""
    return f"this machine is busy: a load of {load:.1f} on {cpus} CPUs; its figures may change when it is quiet"


def _problem_note(bundle: Bundle) -> str:
    """Whether the problem is the one that its name stands for here: speed on another one would mean nothing."""
    name, known = bundle.problem.id, known_problem(bundle.problem.id)
    if known is None:
        return f"no problem named {name} is known here, it is judged by its text in the bundle: read its problem.py"
    if known.sha256 == bundle.problem.sha256:
        return ""
    return f"the problem is NOT the {name} that is known here, its text differs: read the bundle's problem.py"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _figure(evaluation: Evaluation) -> str:
    low, high = _interval(evaluation)
    return f"{_speedup(evaluation):.3g}x [{low:.3g}, {high:.3g}]"


def _speedup(evaluation: Evaluation) -> float:
    assert evaluation.speedup is not None
    return evaluation.speedup


def _interval(evaluation: Evaluation) -> tuple[float, float]:
    assert evaluation.speedup_ci is not None
    return evaluation.speedup_ci
