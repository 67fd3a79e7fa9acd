"""The judge: one trusted, long-lived process per device. It holds the clock, the secrets and the answers.

It never imports, executes or unpickles candidate or problem code; see docs/judge.md for the protocol.

It talks with its controller in JSON lines over one socket (fitness/workbench.py):
{"op": "measure", "job": ..., "artifact_dir": ...} -> {"evaluation": ...}; {"op": "baseline", "job": ..., "kind": ...} ->
{"baseline": ...}; a failure of ours -> {"error": ...}. Around the timed rounds it says {"quiet": true / false} and waits
for {"ack": ...}: on the CPU, builds stand still while the clock runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import platform
import random
import select
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitness import timing, verify
from fitness.calls import Call, CandidateFailed, Limits, Runner
from fitness.children import Zygote
from fitness.evaluation import Evaluation, Job, JudgeError, Verdict
from fitness.sandbox import ROOT, hide_from_others, state_dir
from fitness.session import Draw, Session
from fitness.verify import Errors

if TYPE_CHECKING:
    import torch

SESSIONS = 2
"""Problems kept ready at once; each may hold most of a GiB of secret inputs."""
TIMED_S = 4.0
"""Timed rounds of one candidate stop after this long, once FEWEST_ROUNDS are in."""
FEWEST_ROUNDS = 10
FOREIGN_LOAD = 0.15
"""A round is dropped when the reference stood in the run queue for this share of its window."""
MOST_FLUSH_BYTES = 64 << 20
T2_ROUNDS, T2_TOLERANCE = 10, 1.25


@dataclass(slots=True)
class _Rounds:
    """Paired times [ms per call] and how many checks they passed."""

    kernel_ms: list[float] = field(default_factory=list)
    reference_ms: list[float] = field(default_factory=list)
    dropped: int = 0
    draws: int = 0


class Judge:
    """Measures candidates on one device, one at a time."""

    def __init__(self, device: str, sandbox: str, quiet: Callable[[bool], None]) -> None:
        import torch

        self._device, self._fenced, self.level = device, sandbox != "none", "S0"
        self._quiet = quiet
        self._cpus = len(os.sched_getaffinity(0))
        self._zygote = Zygote(self._cpus)
        torch.set_num_threads(self._cpus)
        if self._fenced:
            from fitness.probe import probe

            self.level = probe(self._zygote).level
        self._sessions: OrderedDict[tuple[str, str, str], Session] = OrderedDict()
        self._flush = torch.zeros(min(_cache_bytes(), MOST_FLUSH_BYTES) // 4, dtype=torch.int32)
        self._overhead_ms: float | None = None

    def measure(self, job: Job, artifact_dir: str) -> Evaluation:
        """The evaluation of a built candidate. Raises JudgeError when the fault is not the candidate's."""
        with _device_lock(self._device):
            session = self._session(job)
            started = time.perf_counter()
            common = {
                "problem": job.problem,
                "backend": job.backend,
                "source_sha256": job.source_sha256,
                "device_name": device_name(),
                "sandbox": self.level,
                "judge_sha256": judge_sha256(),
            }
            trial = _Trial(self, session, job, artifact_dir)
            try:
                outcome = trial.run()
            except CandidateFailed as failure:
                reason, verdict = trial.explain(failure)
                outcome = {"verdict": verdict, "reason": reason}
            finally:
                trial.close()
            spent = time.perf_counter() - started
            return Evaluation(**common, **outcome, log=trial.log, evaluate_s=spent, draws=trial.draws)

    def baseline(self, job: Job, kind: str) -> dict[str, Any]:
        """The reference against itself (`eager`) or against torch.compile of itself (`compile`)."""
        with _device_lock(self._device):
            session = self._session(job)
            is_copied = bool(session.state_layouts)
            try:
                other = session.reference(is_copied, compile_it=kind == "compile")
            except CandidateFailed as failure:
                raise JudgeError(f"baseline {kind} of {job.problem} failed: {failure.reason}") from failure
            try:
                rounds = self.paired(session, lambda: other, is_copied, None, reuse=True)
            except CandidateFailed as failure:
                raise JudgeError(f"baseline {kind} of {job.problem} failed: {failure.reason}") from failure
            finally:
                other.close()
                other.child.discard()
            found = timing.summarise(rounds.kernel_ms, rounds.reference_ms)
            return {
                "problem": job.problem,
                "kind": kind,
                "ms": found.kernel_ms,
                "ms_ci": list(found.kernel_ms_ci),
                "speedup_vs_eager": found.speedup,
                "speedup_vs_eager_ci": list(found.speedup_ci),
                "rounds": found.rounds,
                "device_name": device_name(),
            }

    def paired(
        self,
        session: Session,
        candidate: Callable[[], Runner],
        is_copied: bool,
        incumbent_ms: float | None,
        *,
        calls: int | None = None,
        most_rounds: int | None = None,
        fresh: bool = False,
        reuse: bool = False,
    ) -> _Rounds:
        """Timed rounds of candidate and reference on the same inputs in random order; every output is checked.

        `candidate()` gives a new process, since a process must see each input once; `reuse` keeps one (baselines, which
        do not cheat). Raises CandidateFailed at the first wrong output.
        """
        calls = calls or session.calls
        pool = list(session.pool(is_copied, fresh=fresh))
        rounds, order = _Rounds(), random.SystemRandom()
        runner = candidate()
        reference = session.reference(is_copied)
        deadline = time.monotonic() + TIMED_S
        self._quiet(True)
        try:
            while True:
                order.shuffle(pool)
                warm, *batches = [pool[i : i + calls] for i in range(0, len(pool) - calls + 1, calls)]
                self._both(runner, reference, warm, order, rounds, keep=False)
                for batch in batches:
                    self._both(runner, reference, batch, order, rounds, keep=True)
                    if self._enough(rounds, incumbent_ms, deadline, most_rounds):
                        return rounds
                if not reuse:
                    runner.close()
                    runner = candidate()
        finally:
            self._quiet(False)
            reference.close()
            reference.child.discard()

    def _both(
        self, runner: Runner, reference: Runner, batch: list[Draw], order: random.Random, rounds: _Rounds, *, keep: bool
    ) -> None:
        inputs = [draw.inputs for draw in batch]
        sides = [runner, reference]
        order.shuffle(sides)
        made: dict[int, Call] = {}
        for side in sides:
            made[id(side)] = side.call(inputs, self._flush)
        theirs, ours = made[id(runner)], made[id(reference)]
        check(theirs, batch)
        rounds.draws += len(batch)
        if not keep:
            return
        if ours.waited_share > FOREIGN_LOAD:
            rounds.dropped += 1
            return
        rounds.kernel_ms.append(theirs.window_ms / len(batch))
        rounds.reference_ms.append(ours.window_ms / len(batch))

    def _enough(self, rounds: _Rounds, incumbent_ms: float | None, deadline: float, most: int | None) -> bool:
        kept = len(rounds.kernel_ms)
        if most is not None and kept >= most:
            return True
        if time.monotonic() > deadline and (kept >= FEWEST_ROUNDS or time.monotonic() > deadline + 3 * TIMED_S):
            return True
        return kept > 0 and timing.may_stop(rounds.kernel_ms, rounds.reference_ms, incumbent_ms)

    def overhead_ms(self, session: Session) -> float:
        """A trusted no-op measured like a call of this problem's kind: what the protocol itself costs."""
        if self._overhead_ms is None:
            job = dataclasses.replace(session.job, problem="no-op", problem_source=_NO_OP, source=_NO_OP)
            idle = Session(self._zygote, job, fenced=self._fenced)
            self._overhead_ms = idle.pilot_ms
            idle.close()
        return self._overhead_ms

    def close(self) -> None:
        """Ends everything that the judge started."""
        for session in self._sessions.values():
            session.close()
        self._zygote.close()

    def _session(self, job: Job) -> Session:
        key = (job.problem_source, job.precision, job.device)
        if key not in self._sessions:
            if len(self._sessions) >= SESSIONS:
                self._sessions.popitem(last=False)[1].close()
            self._sessions[key] = Session(self._zygote, job, fenced=self._fenced)
        self._sessions.move_to_end(key)
        return self._sessions[key]


class _Trial:
    """One candidate on the bench."""

    def __init__(self, judge: Judge, session: Session, job: Job, artifact_dir: str) -> None:
        self._judge, self._session, self._job, self._artifact_dir = judge, session, job, artifact_dir
        self._limits = Limits(job.timeout_s, job.memory_bytes)
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
        rounds = self._judge.paired(
            session,
            lambda: next(starts, None) or self._start(),
            is_copied,
            self._job.incumbent_ms,
            fresh=self._job.fresh,
        )
        self.draws += rounds.draws
        if len(rounds.kernel_ms) < FEWEST_ROUNDS // 2:
            lost = rounds.dropped
            return {
                "verdict": Verdict.NO_VERDICT,
                "reason": f"{lost} of {lost + len(rounds.kernel_ms)} rounds were disturbed by other load on the machine",
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
        runner = self._session.candidate(self._artifact_dir, self._limits)
        self._runners.append(runner)
        return runner

    def _verify(self, runner: Runner) -> tuple[list[Errors], int]:
        found = []
        for draw in self._session.verification(bool(runner.code)):
            call = runner.call([draw.inputs])
            check(call, [draw])
            self.draws += 1
            if draw.family in ("own", "normal"):
                found += [verify.errors(a, e) for a, e in zip(call.outputs[0], draw.expected, strict=True)]
        return found, runner.peak_extra_bytes()

    def _score(self, rounds: _Rounds, found: list[Errors], held: int) -> dict[str, Any]:
        result = timing.summarise(rounds.kernel_ms, rounds.reference_ms)
        tier, note = "T2", ""
        overhead_ms = self._judge.overhead_ms(self._session)
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
            "features": {"peak_extra_bytes": held, "dropped_rounds": rounds.dropped, "weights": self._weights()},
        }

    def _weights(self) -> str:
        if not self._session.state_layouts:
            return "none"
        return "copied" if self._is_copied else "seeded"

    def _single_calls(self) -> timing.Timing:
        rounds = self._judge.paired(
            self._session, self._start, self._is_copied, None, calls=1, most_rounds=T2_ROUNDS
        )
        self.draws += rounds.draws
        return timing.summarise(rounds.kernel_ms, rounds.reference_ms)

    def _wrote_to_inputs(self) -> str:
        """Whether the candidate writes to its inputs, found out in a process whose inputs are its own copy."""
        try:
            runner = self._session.candidate(self._artifact_dir, self._limits, writable_inputs=True)
        except CandidateFailed:
            return ""
        self._runners.append(runner)
        draw = self._session.verification(bool(runner.code))[0]
        try:
            runner.call([draw.inputs])
        except CandidateFailed:
            return ""
        return runner.changed_input(draw.inputs)


def check(call: Call, batch: list[Draw]) -> None:
    """Raises CandidateFailed unless every output of the call is right."""
    for outputs, draw in zip(call.outputs, batch, strict=True):
        for index, (actual, expected) in enumerate(zip(outputs, draw.expected, strict=True)):
            if not verify.is_right(actual, expected):
                which = f"output {index} " if len(outputs) > 1 else ""
                reason = f"{which}on a draw of family {draw.family}: {verify.complaint(actual, expected)}"
                raise CandidateFailed(Verdict.WRONG_RESULT, reason)


_NO_OP = '''
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.rand(16)]
def get_init_inputs():
    return []
'''


@contextlib.contextmanager
def _device_lock(device: str) -> Iterator[None]:
    """One measurement at a time per device, also across processes of this user."""
    descriptor = os.open(state_dir() / f"device-{device}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _cache_bytes() -> int:
    """The last-level cache of CPU 0; 32 MiB where the kernel does not say."""
    sizes = [32 << 20]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text[:-1]) << {"K": 10, "M": 20}.get(text[-1], 0))
    return max(sizes[1:], default=sizes[0])


@cache
def device_name() -> str:
    """`AMD EPYC, 2 CPUs`."""
    with open("/proc/cpuinfo") as info:
        names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} CPUs"


@cache
def judge_sha256() -> str:
    """Hex digest over the sources of the judge itself: which judge said so."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "fitness").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def main(descriptor: int, device: str, sandbox: str) -> None:
    """Answers requests until the socket closes."""
    hide_from_others()
    channel = socket.socket(fileno=descriptor)
    threading.Thread(target=_end_with_controller, args=(channel.fileno(),), daemon=True).start()
    lines = channel.makefile("r", encoding="utf-8")

    def say(message: dict[str, Any]) -> None:
        channel.sendall(json.dumps(message).encode() + b"\n")

    def quiet(is_on: bool) -> None:
        say({"quiet": is_on})
        if not lines.readline():
            raise JudgeError("the controller is gone")

    try:
        judge = Judge(device, sandbox, quiet)
    except JudgeError as error:
        say({"error": str(error)})
        return
    say({"ready": True, "sandbox": judge.level})
    for line in lines:
        request = json.loads(line)
        job = Job(**request["job"])
        try:
            if request["op"] == "measure":
                say({"evaluation": judge.measure(job, request["artifact_dir"]).to_json()})
            else:
                say({"baseline": judge.baseline(job, request["kind"])})
        except (JudgeError, CandidateFailed) as error:
            say({"error": str(error)})
    judge.close()


def _end_with_controller(descriptor: int) -> None:
    """Exits when the controller's end of the socket closes, whatever is going on; the zygote then kills its children."""
    poller = select.poll()
    poller.register(descriptor, select.POLLRDHUP | select.POLLHUP)
    poller.poll()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
