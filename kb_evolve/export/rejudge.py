"""Judging a bundle's elite again, and saying whether what is claimed of it holds here."""

from __future__ import annotations

import dataclasses
import enum
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from fitness.evaluation import Evaluation, Job, Verdict
from islands.elite import TWO_SIDED_95, error_of, fitness, gain_over, pooled
from kb_evolve.annotate import annotate
from kb_evolve.config import Config, resolve
from kb_evolve.export.opened import Bundle, known_problem
from kb_evolve.export.sealed import BundleError, beside
from kb_evolve.judging import Bench, make_job
from problems.problem import ProblemError

RIGHT = (Verdict.CORRECT, Verdict.VERIFIED)
OF_THE_MACHINE = (Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY)
"""Failures that say as much about the machine as about the kernel."""
STACK = ("torch", "triton")
"""Packages whose versions change times: the reference's, or the kernel's."""
OWN_LOAD = 2
"""What judging itself adds to the load average."""
TRIES = 3
"""Judgements at most, while there is no verdict."""
JUDGEMENTS = 5
"""Judgements at most that count together, while verdicts agree and speedups do not."""
TOLERANCE = 0.05
"""Share by which true speedups of one kernel may differ from one sitting to the next: memory lies elsewhere, clocks and
temperatures are others. No interval of one sitting holds that."""
WIDEST = 0.25
"""Half-width of the ratio's 95% interval above which a meeting of intervals says nothing: all would agree."""
TWO_SIDED_99 = 2.575829
"""Quantile of the normal distribution: who says that a claim does not hold should be surer than 95%."""
STUDENT_99 = (63.657, 9.925, 5.841, 4.604)
"""The same quantile of Student's t with 1, 2, ... degrees of freedom."""


class Word(enum.StrEnum):
    """The answer in a word."""

    AGREES = "agrees"
    DIFFERS = "differs"
    TOO_NOISY = "too noisy to tell"
    """The verdicts agree; the speedups can be told neither equal nor apart here."""
    NO_ANSWER = "no answer"
    """There is no verdict here."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What judging again says of a bundle."""

    word: Word
    reason: str
    """One sentence with numbers."""
    notes: tuple[str, ...]
    """What else differs between there and here."""
    here: Evaluation

    @property
    def agrees(self) -> bool | None:
        """None: this machine cannot say."""
        return {Word.AGREES: True, Word.DIFFERS: False}.get(self.word)

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
            "answer": self.word.value,
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


def rejudge(bundle: Bundle, bench: Bench, config: Config, kernelbench: str | None = None) -> Answer:
    """Judges the elite on the workbench and compares. `config` comes from `config_of`, with its device filled in;
    `kernelbench` is a checkout, for what its problems are called.

    A judgement that other load of the machine disturbed is made again, TRIES in all. Where the speedups do not agree,
    up to JUDGEMENTS judgements are pooled (islands.elite.pooled: what scatters more than its intervals say gets a
    wider one) before the answer is no, and it is not no on a machine that is busy with other things. BundleError when
    the problem's own code fails.
    """
    job = dataclasses.replace(make_job(bundle.problem, bundle.source, config), fresh=True)
    is_only_built = job.backend == "cuda" and job.device == "cpu"
    before = _load()
    try:
        here, logs = _settled(bundle.claim, bench, job, 1 if is_only_built else TRIES)
    except ProblemError as error:
        raise BundleError(f"the problem of {bundle.path} cannot be judged: {error}") from error
    word, reason = compare(bundle.claim, here, logs)
    busy = _busy(max(before, _load())) if bundle.backend == "cpp" else ""
    notes = [*_notes(bundle, here, kernelbench), busy]
    if busy and word is Word.DIFFERS and (here.is_correct or here.verdict in OF_THE_MACHINE):
        word, reason = Word.TOO_NOISY, f"{reason}; but {notes.pop()}"
    return Answer(word, reason, tuple(note for note in notes if note), here)


def _settled(claim: Evaluation, bench: Bench, job: Job, tries: int) -> tuple[Evaluation, list[float]]:
    """Judgements until they agree with the claim, or surely do not, those of correct kernels pooled; their fitnesses.

    One judgement alone never says that a correct kernel's speedup differs: without a second there is no verdict.
    """
    here = _judge(bench, job, tries)
    if here.verdict in OF_THE_MACHINE:
        here = _judge(bench, job, tries)
    measured = [here]
    while here.is_correct and len(measured) < JUDGEMENTS:
        word, _ = compare(claim, here, list(map(fitness, measured)))
        if word is Word.AGREES or (word is Word.DIFFERS and len(measured) > 1):
            break
        if word is Word.TOO_NOISY and math.expm1(TWO_SIDED_95 * error_of(claim)) > WIDEST:
            break  # no judgement here makes the claim more precise
        again = _judge(bench, job, tries)
        if again.verdict is Verdict.NO_VERDICT:
            here = here if len(measured) > 1 else again
            break
        measured.append(again)
        here = pooled(measured) if again.is_correct else again
    return here, [fitness(one) for one in measured]


def _judge(bench: Bench, job: Job, tries: int) -> Evaluation:
    """The first judgement with a verdict, of at most `tries`; else the last one."""
    for _ in range(tries):
        here = annotate(bench.evaluate(job), job)
        if here.verdict is not Verdict.NO_VERDICT:
            break
    return here


def compare(claim: Evaluation, here: Evaluation, logs: Sequence[float] = ()) -> tuple[Word, str]:
    """Whether two judgements of one correct kernel agree, and a sentence that says in what.

    `logs` are the logarithms of the speedups of the judgements that were pooled in `here`.
    """
    if here.verdict is Verdict.NO_VERDICT:
        return Word.NO_ANSWER, f"there is no verdict here: {here.reason}"
    if here.verdict not in RIGHT:
        return Word.DIFFERS, f"claimed correct, here {here.verdict}: {here.reason}"
    if here.speedup is None:
        return Word.AGREES, f"the verdict agrees: {here.reason}"
    figures = f"{_figure(claim)} claimed, {_figure(here)} here"
    for what, there, ours in (
        ("devices", claim.device_name, here.device_name),
        ("baselines", claim.baseline, here.baseline),
        ("protocols of the judge", claim.protocol, here.protocol),
    ):
        if there != ours:
            names = f"{there or 'unnamed'} there, {ours or 'unnamed'} here"
            return Word.AGREES, f"the verdict agrees; speedups of different {what} are not compared: {figures}, {names}"
    return _compare_speedups(claim, here, logs, figures)


def _compare_speedups(claim: Evaluation, here: Evaluation, logs: Sequence[float], figures: str) -> tuple[Word, str]:
    """Of one device, by the ratio of the two speedups, whose error is the joint one of both (independent rounds).

    They agree where the ratio's 95% interval meets 1 give or take TOLERANCE, and is no wider than WIDEST; they differ
    where its 99% interval lies beyond, and also that in which one more judgement like those here would lie (the claim
    may be of one sitting, whose interval knows nothing of others). Between the two nothing can be said.
    """
    gain = gain_over(here, claim)
    ratio, apart = math.exp(gain.log_gain), abs(gain.log_gain) - math.log1p(TOLERANCE)
    width = math.expm1(TWO_SIDED_95 * gain.error)
    shown = f"{figures}, {abs(ratio - 1):.1%} {'faster' if ratio > 1 else 'slower'} than claimed"
    if apart > max(TWO_SIDED_99 * gain.error, _one_more(logs)):
        return Word.DIFFERS, f"the verdict agrees, the speedup does not: {shown}"
    if width > WIDEST:
        whose = "the claim's" if error_of(claim) > error_of(here) else "this machine's"
        return Word.TOO_NOISY, (
            f"the verdict agrees, but the ratio of the speedups is known to a factor of {1 + width:.2f} only, "
            f"{1 + WIDEST:.2f} is needed: {figures}; most of that is {whose} noise"
        )
    if apart > TWO_SIDED_95 * gain.error:
        return Word.TOO_NOISY, f"the verdict agrees, the speedups are neither surely alike nor surely apart: {shown}"
    return Word.AGREES, f"verdict and speedup agree: {figures}"


def _one_more(logs: Sequence[float]) -> float:
    """Half-width of the 99% prediction interval for one more value like these, t s sqrt(1 + 1/n); 0 of fewer than 2."""
    count = len(logs)
    return STUDENT_99[count - 2] * statistics.stdev(logs) * math.sqrt(1 + 1 / count) if count > 1 else 0.0


def _notes(bundle: Bundle, here: Evaluation, kernelbench: str | None) -> list[str]:
    """What differs there and here, and may explain a difference."""
    claim = bundle.claim
    notes = [_problem_note(bundle, kernelbench), _strangers_note(bundle)]
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
    return notes


def _load() -> float:
    return os.getloadavg()[0]


def _busy(load: float) -> str:
    """Whether other programs want the CPUs: a kernel with threads then suffers more than a reference with fewer."""
    cpus = len(os.sched_getaffinity(0))
    if load <= cpus + OWN_LOAD:
        return ""
    return f"this machine is busy: a load of {load:.1f} on {cpus} CPUs; verify again when it is quiet"


def _strangers_note(bundle: Bundle) -> str:
    """Files of the folder for which nothing vouches, not even its own checksums."""
    names = beside(bundle.path, bundle.files)
    if not names:
        return ""
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"files that no checksum names, not looked at: {shown}"


def _problem_note(bundle: Bundle, kernelbench: str | None) -> str:
    """Whether the problem is the one that its name stands for here: speed on another one would mean nothing."""
    name, known = bundle.problem.id, known_problem(bundle.problem.id, kernelbench)
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
