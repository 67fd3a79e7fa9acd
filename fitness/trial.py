"""One candidate on the bench: load, verify, time, explain."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from fitness import kernelbench, timing, verify
from fitness.calls import Call, Runner
from fitness.draws import Draw, check
from fitness.evaluation import Job, Verdict
from fitness.process import CandidateFailed
from fitness.rounds import FEWEST_ROUNDS, Bench, Plan, Rounds, paired
from fitness.session import Session
from fitness.verify import Errors

if TYPE_CHECKING:
    from fitness.gpu.calls import GpuRunner
    from fitness.gpu.session import GpuSession

MORE_DRAWS = 16
EARLY_ROUNDS, EARLY_MS = 6, 0.2
"""Writing inputs takes the same for both sides, save for a tenth of a millisecond; a window takes some 12 ms."""
OWN_THREADS = ("std::thread", "std::jthread", "std::async", "pthread_create", "threading", "concurrent.futures")
"""Programs with these start threads besides OpenMP's: their main thread is not bound to a CPU."""
T2_TOLERANCE = 1.03
"""A batch's time per call stands unless one call alone surely takes more than this many times as long, and the
session's slack: unless the 95% interval of its median lies above."""
RELOAD_S = 0.5
"""On a GPU a candidate that takes longer to load is timed in one process."""
FEWEST_SINGLES = 6
"""Of fewer rounds nothing can be said with 95%."""
FAILED_CALLS = (Verdict.RUNTIME_ERROR, Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY)
"""A call gave no outputs: nothing can be said of what KernelBench would make of them."""
SINGLE_TRIES = 3
"""In so many processes: now and then all calls of one are slow, by the CPU or the memory that it happened to get."""


class Trial:
    """One candidate on the bench."""

    def __init__(
        self, bench: Bench, session: Session | GpuSession, job: Job, artifact_dir: str, overhead_ms: float
    ) -> None:
        self._bench, self._session, self._job, self._artifact_dir = bench, session, job, artifact_dir
        self._overhead_ms = overhead_ms
        self._limits = session.candidate_limits(job)
        self._is_interpreted = job.device == "cpu" and job.backend == "triton"
        self._own_threads = any(word in job.source for word in OWN_THREADS)
        self._runners: list[Runner | GpuRunner] = []
        self._spent: dict[str, float] = {}
        """Seconds by stage, for whoever asks where the time goes."""
        self._kernelbench: list[bool] = []
        """What its rule says of each own draw of the first check."""
        self.draws = 0
        self.log = ""

    def run(self) -> dict[str, Any]:
        """The fields of a correct Evaluation. Raises CandidateFailed otherwise."""
        started = time.monotonic()
        runner = self._start()
        session = self._session
        self._note("load_s", started)
        is_copied = bool(runner.code)
        self._is_copied = is_copied
        started = time.monotonic()
        found, held = self._verify(runner)
        self._note("verify_s", started)
        if self._is_interpreted:
            return self._verified(runner, found, held)
        starts = iter([runner])
        keep = self._job.device != "cpu" and self._spent["load_s"] > RELOAD_S
        plan = Plan(session.calls, incumbent_ms=self._job.incumbent_ms, fresh=self._job.fresh, keep_process=keep)
        started = time.monotonic()
        rounds = paired(self._bench, session, lambda: next(starts, None) or self._start(), is_copied, plan)
        self._note("rounds_s", started)
        self.draws += rounds.draws
        _refuse_early_work(rounds)
        if rounds.kept < FEWEST_ROUNDS // 2 and rounds.dropped:
            return {"verdict": Verdict.NO_VERDICT, "reason": rounds.disturbed()}
        return self._score(rounds, found, held)

    def _verified(self, runner: Runner | GpuRunner, found: list[Errors], held: int) -> dict[str, Any]:
        """The answer on what cannot be timed here, after more draws: some cheats begin with the tenth call."""
        assert isinstance(self._session, Session)
        for draw in self._session.pool(self._is_copied, fresh=False)[:MORE_DRAWS]:
            check(runner.call([draw.inputs]), [draw])
            self.draws += 1
        reason = f"right on {self.draws} draws in Triton's interpreter; not timed: no GPU is here"
        return {"verdict": Verdict.VERIFIED, "reason": reason, **self._findings(found, held)}

    def explain(self, failure: CandidateFailed) -> tuple[str, Verdict]:
        """The reason in full; a crash is tried again on writable inputs to see whether it wrote to them."""
        if failure.verdict is Verdict.TIMEOUT and self._is_interpreted and "load_s" in self._spent:
            return f"{failure.reason} {self._slowness()}", Verdict.NO_VERDICT
        printed = self.log.strip().splitlines()
        if self._job.device == "cpu" and failure.verdict is Verdict.RUNTIME_ERROR and failure.signal in (7, 11):
            changed = self._wrote_to_inputs()
            if changed:
                return changed, Verdict.CONTRACT
        reason = failure.reason
        if failure.verdict is Verdict.RUNTIME_ERROR and printed and "failed:" not in reason:
            reason += f"; its last line: {printed[-1][:200]}"
        return reason, failure.verdict

    def kernelbench_correct(self, verdict: Verdict) -> bool | None:
        """What KernelBench's rule says of the first check's own draws, up to the call with the first wrong output; None
        where none was answered or `verdict` says that a call failed."""
        if not self._kernelbench or verdict in FAILED_CALLS:
            return None
        return all(self._kernelbench)

    def _slowness(self) -> str:
        """Why a call that did not end in Triton's interpreter says nothing of the kernel."""
        session = self._session
        largest = max(layout.numel for layout in (*session.inputs, *session.outputs))
        return (
            f"in Triton's interpreter: it is too slow for tensors of {largest:,} elements, or the kernel never ends; "
            "judge it on a machine with an NVIDIA GPU, or on a problem with smaller sizes"
        )

    def close(self) -> None:
        """Ends the candidate's processes, keeps their log and removes what they wrote."""
        for runner in self._runners:
            runner.close()
            self.log = runner.child.log() or self.log
            runner.child.discard()
        self._runners.clear()

    def _start(self) -> Runner | GpuRunner:
        self.close()
        runner = self._session.candidate(self._artifact_dir, self._limits, own_threads=self._own_threads)
        self._runners.append(runner)
        constant = self._session.facts["constant"]
        if constant and not runner.code:
            reason = (
                f"its parameters must carry the reference's names and shapes ({', '.join(constant[:4])}, ...): "
                "these are constant at first, and a kernel that does not take them could leave them out"
            )
            raise CandidateFailed(Verdict.CONTRACT, reason)
        return runner

    def _verify(self, runner: Runner | GpuRunner) -> tuple[list[Errors], int]:
        found: list[Errors] = []
        seen: set[str] = set()
        for group in _grouped(self._session.verification(bool(runner.code))):
            call = runner.call([draw.inputs for draw in group])
            try:
                check(call, group)
            finally:  # after it, so that the verdict waits for nothing
                self._read_kernelbench(call, group)
            self.draws += len(group)
            draw = group[0]
            if draw.family in ("own", "normal") and draw.family not in seen:
                seen.add(draw.family)
                found += [verify.errors(a, e) for a, e in zip(call.outputs[0], draw.expected, strict=True)]
            del group, draw, call  # large draws must go before the next is made
        self._threads = runner.threads_used()
        return found, runner.peak_extra_bytes()

    def _read_kernelbench(self, call: Call, group: list[Draw]) -> None:
        for outputs, draw in zip(call.outputs, group, strict=True):
            if draw.family == "own":
                self._kernelbench.append(kernelbench.accepts(outputs, draw.expected, self._job.precision))

    def _score(self, rounds: Rounds, found: list[Errors], held: int) -> dict[str, Any]:
        result = timing.summarise(rounds.kernel_ms, rounds.reference_ms)
        tier, note = "T2", ""
        if self._session.calls > 1:
            certified = self._certified(result)
            if certified is None:
                return {"verdict": Verdict.NO_VERDICT, "reason": "its single calls were disturbed by other load"}
            result, tier, note = certified
        low, high = result.speedup_ci
        put_off_ms = timing.centre(rounds.put_off_ms)
        if put_off_ms:
            note += f"; {put_off_ms:.3g} ms of a call came after its outputs, and count"
        reason = (
            f"correct on {self.draws} draws; {result.kernel_ms:.4g} ms against {result.reference_ms:.4g} ms eager: "
            f"{result.speedup:.3g}x [{low:.3g}, {high:.3g}] over {result.rounds} rounds{note}"
        )
        findings = self._findings(found, held)
        findings["features"] |= {"dropped_rounds": rounds.dropped, "calls_per_window": rounds.calls}
        findings["features"]["slow_reference_rounds"] = len(rounds.set_aside)
        if put_off_ms:
            findings["features"]["put_off_ms"] = put_off_ms
        findings["features"] |= self._bench.summary()
        return {
            "verdict": Verdict.CORRECT,
            "reason": reason,
            "kernel_ms": result.kernel_ms,
            "kernel_ms_ci": result.kernel_ms_ci,
            "reference_ms": result.reference_ms,
            "speedup": result.speedup,
            "speedup_ci": result.speedup_ci,
            "tier": tier,
            "rounds": result.rounds,
            "overhead_ms": self._overhead_ms,
            **findings,
        }

    def _findings(self, found: list[Errors], held: int) -> dict[str, Any]:
        """What verification alone says."""
        return {
            "max_abs_err": max(errors.max_abs_err for errors in found),
            "error_ratio": max(errors.ratio for errors in found),
            "peak_mem_bytes": held,
            "features": {
                "threads": self._threads,
                "peak_extra_bytes": held,
                "weights": self._weights(),
                **self._spent,
            },
        }

    def _certified(self, batched: timing.Timing) -> tuple[timing.Timing, str, str] | None:
        """The batches' result, if calls one at a time bear it out; else what those say: (result, tier, note). None
        where too few of them were undisturbed.

        A candidate could put its work off to the end of a batch and do it there in one go. The difference to the
        reference in single calls, where nothing can be put off, tells: what goes on around the calls cancels.
        """
        started = time.monotonic()
        most_ms = T2_TOLERANCE * batched.kernel_ms + self._session.single_slack_ms(batched.kernel_ms)
        fastest: list[float] = []
        for number in range(SINGLE_TRIES):
            single = self._single(batched.reference_ms, keep_process=number == 0 and self._job.device != "cpu")
            self._note("single_s", started)
            if len(single) < FEWEST_SINGLES:
                continue
            if timing.interval(single)[0] <= most_ms:
                return batched, "T1", ""
            fastest = min(fastest or single, single, key=timing.centre)
        if not fastest:
            return None
        low, high = timing.interval(fastest)
        kernel_ms, reference_ms = timing.centre(fastest), batched.reference_ms
        result = timing.Timing(
            kernel_ms,
            (low, high),
            reference_ms,
            reference_ms / kernel_ms,
            (reference_ms / high, reference_ms / low),
            len(fastest),
        )
        return result, "T2", f"; one call alone took {result.kernel_ms:.3g} ms, so that is the score"

    def _single(self, reference_ms: float, *, keep_process: bool) -> list[float]:
        """Times of single calls [ms], as differences to the reference's; none where all rounds were disturbed."""
        again = (lambda: self._runners[-1]) if keep_process else self._start
        rounds = paired(self._bench, self._session, again, self._is_copied, self._session.single_plan)
        self.draws += rounds.draws
        return [k - r + reference_ms for k, r in zip(rounds.kernel_ms, rounds.reference_ms, strict=True)]

    def _note(self, stage: str, started: float) -> None:
        self._spent[stage] = round(time.monotonic() - started, 3)

    def _weights(self) -> str:
        if not self._session.state_layouts:
            return "none"
        return "copied" if self._is_copied else "seeded"

    def _wrote_to_inputs(self) -> str:
        """Whether the candidate writes to its inputs, found out in a process whose inputs are its own copy."""
        try:
            runner = self._session.candidate(
                self._artifact_dir, self._limits, own_threads=self._own_threads, writable_inputs=True
            )
        except CandidateFailed:
            return ""
        self._runners.append(runner)
        assert isinstance(runner, Runner)
        draw = next(iter(self._session.verification(bool(runner.code))))
        try:
            runner.call([draw.inputs])
        except CandidateFailed:
            return ""
        return runner.changed_input(draw.inputs)


def _refuse_early_work(rounds: Rounds) -> None:
    """CandidateFailed when writing a candidate's inputs surely took longer than writing the reference's: the device
    then did something else meanwhile, such as work that waits in a stream for the inputs to change."""
    if rounds.kept < EARLY_ROUNDS:
        return
    low, _ = timing.interval(rounds.reveals_ms)
    if low > EARLY_MS:
        reason = (
            f"writing its next inputs took {low:.2f} ms a round longer than writing the reference's: work of its own "
            "ran on the device meanwhile, or it has some hundred threads on the host, each of which is looked at"
        )
        raise CandidateFailed(Verdict.CONTRACT, reason)


def _grouped(draws: Iterable[Draw]) -> Iterator[list[Draw]]:
    """The first two in one call, so that outputs which share memory show; large ones, made one at a time, singly."""
    if isinstance(draws, list) and len(draws) > 1:
        yield draws[:2]
        draws = draws[2:]
    for draw in draws:
        yield [draw]
        del draw
