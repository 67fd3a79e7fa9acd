"""The judge: one trusted, long-lived process per device. It holds the clock, the secrets and the answers.

It never imports, executes or unpickles candidate or problem code; see docs/judge.md for the protocol.

It talks with its controller in JSON lines over one socket (fitness/workbench.py):
{"op": "measure", "job": ..., "artifact_dir": ...} -> {"evaluation": ...};
{"op": "baseline", "job": ..., "kind": ...} -> {"baseline": ...}; a failure of ours -> {"error": ...}.
Around the timed rounds it says {"quiet": true / false} and waits for {"ack": ...}: on the CPU, builds stand still
while the clock runs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fitness import health, profile, timing
from fitness.children import Zygote
from fitness.evaluation import Evaluation, Job, JudgeError, Verdict
from fitness.machine import cache_bytes, device_lock, device_name, judge_sha256
from fitness.process import CandidateFailed, raise_priority
from fitness.rounds import FEWEST_ROUNDS, Bench, Plan, paired
from fitness.sandbox import hide_from_others, sleep_precisely
from fitness.session import BASELINES, NO_OP, Session, tf32_complaint
from fitness.trial import Trial
from problems.problem import ProblemError

if TYPE_CHECKING:
    from fitness.gpu.session import GpuSession

SESSIONS = 2
"""Problems kept ready at once on the CPU; each may hold most of a GiB of secret inputs. On a GPU: one."""
MOST_FLUSH_BYTES = 64 << 20


class Judge:
    """Measures candidates on one device, one at a time."""

    def __init__(self, device: str, sandbox: str, quiet: Callable[[bool], None]) -> None:
        available = os.sched_getaffinity(0)
        import torch

        os.sched_setaffinity(0, available)  # with its threads bound, OpenMP binds whoever loads it to the first CPU
        self._device, self._fenced, self.level = device, sandbox != "none", "S0"
        self._is_gpu = device != "cpu"
        self._zygote = Zygote(len(available), device, bind_threads=not self._is_gpu)
        torch.set_num_threads(len(available))
        if self._fenced:
            from fitness.probe import probe

            self.level = probe(self._zygote, gpu=self._is_gpu).level
        self._sessions: OrderedDict[tuple[str, ...], Session | GpuSession] = OrderedDict()
        if self._is_gpu:
            health.refuse(device)
            from fitness.gpu import cpus
            from fitness.gpu.bench import open_bench

            mine, others = cpus.divided(device, frozenset(available))
            self._zygote.bind(others)
            os.sched_setaffinity(0, mine)
            self._bench = open_bench(device, self._zygote, fenced=self._fenced)
        else:
            flush = torch.zeros(min(cache_bytes(), MOST_FLUSH_BYTES) // 4, dtype=torch.int32)
            self._bench = Bench(quiet, flush, disturbed=str)
        self._overhead_ms: float | None = None

    def measure(self, job: Job, artifact_dir: str) -> Evaluation:
        """The evaluation of a built candidate. Raises JudgeError when the fault is not the candidate's."""
        with device_lock(self._device):
            session = self._session(job)
            started = time.perf_counter()
            common: dict[str, Any] = {
                "problem": job.problem,
                "backend": job.backend,
                "source_sha256": job.source_sha256,
                "device_name": device_name(self._device),
                "sandbox": self.level,
                "judge_sha256": judge_sha256(),
            }
            trial = Trial(self._bench, session, job, artifact_dir, self._no_op_ms(job))
            try:
                outcome = trial.run()
                if job.profile and outcome["verdict"] is Verdict.CORRECT:
                    outcome["features"] |= profile.take(self._zygote, job, artifact_dir, fenced=self._fenced)
            except CandidateFailed as failure:
                reason, verdict = trial.explain(failure)
                outcome = {"verdict": verdict, "reason": reason}
            except (JudgeError, ProblemError):
                self._forget_sessions()
                raise
            finally:
                trial.close()
            self._check_device(outcome["verdict"])
            spent = time.perf_counter() - started
            common["kernelbench_correct"] = trial.kernelbench_correct(outcome["verdict"])
            return Evaluation(**common, **outcome, log=trial.log, evaluate_s=spent, draws=trial.draws)

    def baseline(self, job: Job, kind: str) -> dict[str, Any]:
        """The reference against a baseline of itself; `kind` is one of fitness.session.BASELINES. JudgeError where it
        fails or the job's precision has no such baseline."""
        if complaint := tf32_complaint(kind, job.precision):
            raise JudgeError(f"baseline {kind} of {job.problem} {complaint}: leave it out")
        with device_lock(self._device):
            session = self._session(job)
            is_copied = bool(session.state_layouts)
            try:
                other = session.reference(is_copied, kind)
            except CandidateFailed as failure:
                raise JudgeError(f"baseline {kind} of {job.problem} failed: {failure.reason}") from failure
            try:
                other.call([next(iter(session.verification(is_copied))).inputs])  # torch.compile compiles here
                plan = Plan(session.calls, keep_process=True, is_checked=not BASELINES[kind][1])
                rounds = paired(self._bench, session, lambda: other, is_copied, plan)
            except CandidateFailed as failure:
                raise JudgeError(f"baseline {kind} of {job.problem} failed: {failure.reason}") from failure
            finally:
                other.close()
                other.child.discard()
            if rounds.kept < FEWEST_ROUNDS // 2 and rounds.dropped:
                raise JudgeError(
                    f"baseline {kind} of {job.problem}: {rounds.disturbed()}; end other programs and try again"
                )
            found = timing.summarise(rounds.kernel_ms, rounds.reference_ms)
            return {
                "problem": job.problem,
                "kind": kind,
                "ms": found.kernel_ms,
                "ms_ci": list(found.kernel_ms_ci),
                "speedup_vs_eager": found.speedup,
                "speedup_vs_eager_ci": list(found.speedup_ci),
                "rounds": found.rounds,
                "samples_ms": rounds.kernel_ms,
                "device_name": device_name(self._device),
            }

    def _no_op_ms(self, job: Job) -> float:
        """A trusted no-op measured like any call: what the protocol itself costs."""
        if self._is_gpu:
            return self._bench.fixed_ms
        if self._overhead_ms is None:
            job = dataclasses.replace(job, problem="no-op", problem_source=NO_OP, source=NO_OP, precision="fp32")
            idle = Session(self._zygote, job, fenced=self._fenced)
            self._overhead_ms = idle.pilot_ms
            idle.close()
        return self._overhead_ms

    def _check_device(self, verdict: Verdict) -> None:
        """After a crash or a kill on a GPU: JudgeError, and the card put aside, if it no longer computes."""
        if self._is_gpu and verdict in (Verdict.RUNTIME_ERROR, Verdict.TIMEOUT, Verdict.LOAD_ERROR):
            health.check(self._device, health.starter(self._zygote, self._device, fenced=self._fenced))

    @property
    def is_spent(self) -> bool:
        """Whether its zygote is gone, and with it every problem that was ready."""
        return self._zygote.is_dead

    def close(self) -> None:
        """Ends everything that the judge started."""
        self._forget_sessions()
        self._zygote.close()

    def _forget_sessions(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def _session(self, job: Job) -> Session | GpuSession:
        key = (job.problem_source, job.precision, job.device, job.backend)
        if key not in self._sessions:
            while len(self._sessions) >= (1 if self._is_gpu else SESSIONS):
                self._sessions.popitem(last=False)[1].close()
            try:
                self._sessions[key] = self._open_session(job)
            except JudgeError:
                if not self._sessions:
                    raise
                self._forget_sessions()  # perhaps it is their memory that is lacking
                self._sessions[key] = self._open_session(job)
        self._sessions.move_to_end(key)
        return self._sessions[key]

    def _open_session(self, job: Job) -> Session | GpuSession:
        if not self._is_gpu:
            return Session(self._zygote, job, fenced=self._fenced)
        from fitness.gpu.session import GpuSession

        return GpuSession(self._zygote, job, self._bench.flush, fenced=self._fenced)


def main(descriptor: int, device: str, sandbox: str) -> None:
    """Answers requests until the socket closes."""
    hide_from_others()
    sleep_precisely()
    raise_priority(os.getpid())
    channel = socket.socket(fileno=descriptor)
    threading.Thread(target=_end_with_controller, args=(channel.fileno(),), daemon=True).start()
    lines = channel.makefile("r", encoding="utf-8")

    def say(message: dict[str, Any]) -> None:
        try:
            channel.sendall(json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            os._exit(0)  # the controller is gone

    def quiet(is_on: bool) -> None:
        say({"quiet": is_on})
        if not lines.readline():
            raise JudgeError("the controller is gone")

    try:
        judge = Judge(device, sandbox, quiet)
    except (JudgeError, ProblemError, CandidateFailed) as error:
        say({"error": str(error)})
        return
    except RuntimeError as error:
        say({"error": f"the judge cannot start on {device}: {_first_line(error)}"})
        return
    say({"ready": True, "sandbox": judge.level})
    for line in lines:
        message = answer(judge, json.loads(line))
        is_last = judge.is_spent or "failed" in message
        say({**message, "is_last": is_last})
        if is_last:
            break
    judge.close()


def answer(judge: Judge, request: dict[str, Any]) -> dict[str, Any]:
    """What the controller is told; `failed` where this process may be unfit for more: its own memory or its CUDA
    context has failed, not the candidate's."""
    job = Job(**request["job"])
    try:
        if request["op"] == "measure":
            return {"evaluation": judge.measure(job, request["artifact_dir"]).to_json()}
        return {"baseline": judge.baseline(job, request["kind"])}
    except ProblemError as error:
        return {"error": str(error), "problem": True}
    except (JudgeError, CandidateFailed) as error:
        return {"error": str(error)}
    except (RuntimeError, MemoryError, OSError) as error:
        text = f"the judge itself failed on {job.device}: {_first_line(error)}"
        return {"error": f"{text}; the next measurement starts a new one", "failed": True}


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"


def _end_with_controller(descriptor: int) -> None:
    """Exits when the controller's end of the socket closes; the zygote then kills its children."""
    poller = select.poll()
    poller.register(descriptor, select.POLLRDHUP | select.POLLHUP)
    poller.poll()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
