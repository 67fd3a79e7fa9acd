"""One candidate on the bench: load, verify, time, explain."""

from __future__ import annotations

from typing import Any

from fitness import timing, verify
from fitness.calls import CandidateFailed, Limits, Runner
from fitness.evaluation import Job, Verdict
from fitness.rounds import FEWEST_ROUNDS, Bench, Plan, Rounds, check, paired
from fitness.session import Session
from fitness.verify import Errors

T2_ROUNDS = 10
OWN_THREADS = ("std::thread", "std::jthread", "std::async", "pthread_create", "threading", "concurrent.futures")
"""Programs with these start threads besides OpenMP's: their main thread is not bound to a CPU."""
T2_TOLERANCE = 1.25
"""A batch's time per call stands only if one call alone, less a no-op, takes at most this much more."""


class Trial:
    """One candidate on the bench."""

    def __init__(self, bench: Bench, session: Session, job: Job, artifact_dir: str, overhead_ms: float) -> None:
        self._bench, self._session, self._job, self._artifact_dir = bench, session, job, artifact_dir
        self._overhead_ms = overhead_ms
        self._limits = Limits(job.timeout_s, job.memory_bytes)
        self._own_threads = any(word in job.source for word in OWN_THREADS)
        self._runners: list[Runner] = []
        self.draws = 0
        self.log = ""

    def run(self) -> dict[str, Any]:
        """The fields of a correct Evaluation. Raises CandidateFailed otherwise."""
        runner = self._start()
        session = self._session
        is_copied = bool(runner.code)
        self._is_copied = is_copied
        found, held = self._verify(runner)
        starts = iter([runner])
        plan = Plan(session.calls, incumbent_ms=self._job.incumbent_ms, fresh=self._job.fresh)
        rounds = paired(self._bench, session, lambda: next(starts, None) or self._start(), is_copied, plan)
        self.draws += rounds.draws
        if rounds.kept < FEWEST_ROUNDS // 2:
            share = f"{rounds.dropped} of {rounds.dropped + rounds.kept}"
            return {
                "verdict": Verdict.NO_VERDICT,
                "reason": f"{share} rounds were disturbed by other load on the machine's CPUs",
            }
        return self._score(rounds, found, held)

    def explain(self, failure: CandidateFailed) -> tuple[str, Verdict]:
        """The reason in full; a crash is tried again on writable inputs to see whether it wrote to them."""
        printed = self.log.strip().splitlines()
        if failure.verdict is Verdict.RUNTIME_ERROR and failure.signal in (7, 11):
            changed = self._wrote_to_inputs()
            if changed:
                return changed, Verdict.CONTRACT
        reason = failure.reason
        if failure.verdict is Verdict.RUNTIME_ERROR and printed and "failed:" not in reason:
            reason += f"; its last line: {printed[-1][:200]}"
        return reason, failure.verdict

    def close(self) -> None:
        """Ends the candidate's processes, keeps their log and removes what they wrote."""
        for runner in self._runners:
            if not runner.child.ended.is_set():
                runner.close()
            self.log = runner.child.log() or self.log
            runner.child.discard()
        self._runners.clear()

    def _start(self) -> Runner:
        self.close()
        runner = self._session.candidate(self._artifact_dir, self._limits, own_threads=self._own_threads)
        self._runners.append(runner)
        return runner

    def _verify(self, runner: Runner) -> tuple[list[Errors], int]:
        found: list[Errors] = []
        seen: set[str] = set()
        for draw in self._session.verification(bool(runner.code)):
            call = runner.call([draw.inputs])
            check(call, [draw])
            self.draws += 1
            if draw.family in ("own", "normal") and draw.family not in seen:
                seen.add(draw.family)
                found += [verify.errors(a, e) for a, e in zip(call.outputs[0], draw.expected, strict=True)]
        self._threads = runner.threads_used()
        return found, runner.peak_extra_bytes()

    def _score(self, rounds: Rounds, found: list[Errors], held: int) -> dict[str, Any]:
        result = timing.summarise(rounds.kernel_ms, rounds.reference_ms)
        tier, note = "T2", ""
        overhead_ms = self._overhead_ms
        if self._session.calls > 1:
            tier = "T1"
            single = self._single_calls()
            certain_ms = single.kernel_ms - overhead_ms
            if certain_ms > T2_TOLERANCE * result.kernel_ms + overhead_ms:
                note = f"; one call alone took {single.kernel_ms:.3g} ms, so that is the score"
                result, tier = single, "T2"
        low, high = result.speedup_ci
        reason = (
            f"correct on {self.draws} draws; {result.kernel_ms:.4g} ms against {result.reference_ms:.4g} ms eager: "
            f"{result.speedup:.3g}x [{low:.3g}, {high:.3g}] over {result.rounds} rounds{note}"
        )
        return {
            "verdict": Verdict.CORRECT,
            "reason": reason,
            "kernel_ms": result.kernel_ms,
            "kernel_ms_ci": result.kernel_ms_ci,
            "reference_ms": result.reference_ms,
            "speedup": result.speedup,
            "speedup_ci": result.speedup_ci,
            "max_abs_err": max(errors.max_abs_err for errors in found),
            "error_ratio": max(errors.ratio for errors in found),
            "kernelbench_correct": all(errors.kernelbench_correct for errors in found),
            "peak_mem_bytes": held,
            "tier": tier,
            "rounds": result.rounds,
            "overhead_ms": overhead_ms,
            "features": {
                "threads": self._threads,
                "peak_extra_bytes": held,
                "dropped_rounds": rounds.dropped,
                "weights": self._weights(),
            },
        }

    def _weights(self) -> str:
        if not self._session.state_layouts:
            return "none"
        return "copied" if self._is_copied else "seeded"

    def _single_calls(self) -> timing.Timing:
        rounds = paired(self._bench, self._session, self._start, self._is_copied, Plan(1, most_rounds=T2_ROUNDS))
        self.draws += rounds.draws
        return timing.summarise(rounds.kernel_ms, rounds.reference_ms)

    def _wrote_to_inputs(self) -> str:
        """Whether the candidate writes to its inputs, found out in a process whose inputs are its own copy."""
        try:
            runner = self._session.candidate(
                self._artifact_dir, self._limits, own_threads=self._own_threads, writable_inputs=True
            )
        except CandidateFailed:
            return ""
        self._runners.append(runner)
        draw = self._session.verification(bool(runner.code))[0]
        try:
            runner.call([draw.inputs])
        except CandidateFailed:
            return ""
        return runner.changed_input(draw.inputs)
