"""Children: how the trusted side starts, freezes, watches and ends processes that a zygote forks for it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from fitness.evaluation import LOG_LIMIT, JudgeError
from fitness.quota import remove
from fitness.sandbox import UNCAUGHT, Policy, clean_environment, live_dir

_NO_CUDA_BEFORE_FORK = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""In the zygote, asking torch whether there is a GPU must not start CUDA, which no fork survives; its children may."""
FREEZE_NAP_S = 60e-6
START_TIMEOUT_S = 120.0
"""For importing torch on a cold, busy machine."""


@dataclass(slots=True)
class Child:
    """One forked process, the leader of its own process group."""

    pid: int
    private_dir: str
    log_fd: int
    ended: threading.Event = field(default_factory=threading.Event)
    status: int | None = None
    """Wait status, once `ended` is set."""
    max_rss_bytes: int = 0

    def log(self) -> str:
        """The last LOG_LIMIT characters that the child printed."""
        size = os.fstat(self.log_fd).st_size
        tail = os.pread(self.log_fd, LOG_LIMIT * 2, max(size - LOG_LIMIT * 2, 0))
        return tail.decode(errors="replace")[-LOG_LIMIT:]

    def freeze(self, deadline_s: float = 1.0) -> bool:
        """Stops every thread; True once the kernel shows all of them stopped, False if it does not in time."""
        try:
            os.killpg(self.pid, signal.SIGSTOP)
            deadline = time.monotonic() + deadline_s
            while not _all_in(self.pid, b"TtZX"):
                if time.monotonic() > deadline:
                    return False
                time.sleep(FREEZE_NAP_S)  # a thread stops only once it gets a CPU: perhaps this one
        except (ProcessLookupError, FileNotFoundError):
            return False
        return True

    def is_asleep(self) -> bool:
        """Whether no thread runs or wants to."""
        try:
            return _all_in(self.pid, b"SDZX")
        except (ProcessLookupError, FileNotFoundError):
            return True

    def thaw(self) -> None:
        """Lets it run again."""
        try:
            os.killpg(self.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def kill(self) -> None:
        """Ends the process and all that it started; returns when the zygote has reaped it."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.ended.wait(10)

    def discard(self) -> None:
        """Kills it and removes what it wrote."""
        self.kill()
        os.close(self.log_fd)
        remove(self.private_dir)

    def resident_bytes(self, *, peak: bool = False) -> int:
        """Memory that the process holds now, or held at most, its page tables included; 0 once it is gone."""
        names = (b"VmHWM:" if peak else b"VmRSS:", b"VmPTE:")
        try:
            with open(f"/proc/{self.pid}/status", "rb") as status:
                return 1024 * sum(int(line.split()[1]) for line in status if line.startswith(names))
        except (FileNotFoundError, ProcessLookupError):
            return 0

    def group_bytes(self) -> int:
        """Resident memory of the whole process group."""
        page, total = os.sysconf("SC_PAGE_SIZE"), 0
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    if os.getpgid(int(name)) == self.pid:
                        with open(f"/proc/{name}/statm", "rb") as statm:
                            total += int(statm.read().split()[1]) * page
                except (ProcessLookupError, FileNotFoundError):
                    continue
        return total

    def death(self) -> str:
        """How it ended, in words."""
        if self.status is None:
            return "is still alive"
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            return f"was killed by signal {number} ({signal.Signals(number).name})"
        code = os.WEXITSTATUS(self.status)
        return "ended with an uncaught exception" if code == UNCAUGHT else f"exited with code {code}"


def _all_in(pid: int, states: bytes) -> bool:
    """Whether every thread is in one of the states of /proc/PID/task/T/stat (proc(5))."""
    folder = f"/proc/{pid}/task"
    for task in os.listdir(folder):
        with open(f"{folder}/{task}/stat", "rb") as stat:
            line = stat.read()
        if line[line.rindex(b")") + 2] not in states:
            return False
    return True


class Zygote:
    """A running zygote and its children. Safe to use from several threads."""

    def __init__(self, threads: int, device: str = "cpu", *, bind_threads: bool = False) -> None:
        """`bind_threads`: OpenMP's, of its children, each to a CPU."""
        self.threads, self.device = threads, device
        self._home = tempfile.mkdtemp(prefix="zygote-", dir=live_dir())
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fitness.zygote", str(theirs.fileno()), device],
            pass_fds=[theirs.fileno()],
            env={**clean_environment(self._home, threads, bind_threads=bind_threads), **_NO_CUDA_BEFORE_FORK},
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._asking = threading.Lock()
        self._answers: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._children: dict[int, Child] = {}
        self._early: dict[int, dict[str, Any]] = {}
        self._dead = self._ready = False
        threading.Thread(target=self._listen, daemon=True, name="zygote").start()

    def spawn(self, entry: str, spec: dict[str, Any], policy: Policy, descriptors: Sequence[int] = ()) -> Child:
        """A new child that runs `entry` of fitness/runner.py; raises JudgeError when the zygote is gone."""
        log_fd = os.memfd_create("kb-log", os.MFD_CLOEXEC)
        request = {"entry": entry, "spec": {**spec, "threads": self.threads}, "policy": dataclasses.asdict(policy)}
        with self._asking:
            self._await_ready()
            try:
                socket.send_fds(self._channel, [json.dumps(request).encode()], [log_fd, *descriptors])
            except OSError as error:
                os.close(log_fd)
                raise JudgeError(f"the zygote is gone ({error}); restart the run, it resumes") from error
            pid = self._answer("pid", START_TIMEOUT_S)["pid"]
        with self._changed:
            child = self._children[pid] = Child(pid, policy.private_dir, log_fd)
            if pid in self._early:
                self._end(self._early.pop(pid))
        return child

    def bind(self, cpus: Collection[int]) -> None:
        """Children started from now on run on these CPUs."""
        with contextlib.suppress(ProcessLookupError):  # `spawn` says that it is gone
            os.sched_setaffinity(self._process.pid, cpus)

    def living(self) -> list[Child]:
        """Children that have not ended."""
        with self._changed:
            return [child for child in self._children.values() if not child.ended.is_set()]

    @property
    def is_dead(self) -> bool:
        """Whether it ended by itself, which only somebody outside can bring about; its children are then gone too."""
        return self._dead

    def close(self) -> None:
        """Kills every child and the zygote."""
        for child in self.living():
            child.kill()
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._channel.close()
        remove(self._home)

    def _await_ready(self) -> None:
        with self._changed:
            if not self._ready:
                self._answer("ready", START_TIMEOUT_S)
                self._ready = True

    def _answer(self, key: str, timeout_s: float) -> dict[str, Any]:
        with self._changed:
            self._changed.wait_for(lambda: self._dead or any(key in answer for answer in self._answers), timeout_s)
            for answer in self._answers:
                if key in answer:
                    self._answers.remove(answer)
                    return answer
        raise JudgeError(
            f"the zygote {'died' if self._dead else 'did not answer'} within {timeout_s:.0f} s; "
            "run `kb-evolve doctor` to see whether torch can be imported here"
        )

    def _listen(self) -> None:
        while True:
            try:
                message = self._channel.recv(65536)
            except OSError:
                message = b""
            with self._changed:
                if not message:
                    self._dead = True
                    for child in self._children.values():
                        with contextlib.suppress(ProcessLookupError):
                            os.killpg(child.pid, signal.SIGKILL)  # what a build had started outlives its zygote
                        child.ended.set()
                    self._changed.notify_all()
                    return
                answer = json.loads(message)
                if "ended" in answer:
                    self._end(answer)
                else:
                    self._answers.append(answer)
                self._changed.notify_all()

    def _end(self, note: dict[str, Any]) -> None:
        child = self._children.pop(note["ended"], None)
        if child is None:
            self._early[note["ended"]] = note
            return
        child.status, child.max_rss_bytes = note["status"], note["max_rss_bytes"]
        child.ended.set()
