"""The sandbox's level, measured by attack: what candidate code could do here, tried out by code of ours."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import mmap
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness.children import Zygote
from fitness.evaluation import JudgeError
from fitness.sandbox import Policy, live_dir
from fitness.session import private_policy

ATTEMPTS = {
    "read_secret": "read a file of yours outside the sandbox",
    "write_outside": "write outside its own folder",
    "change_metadata": "change the mode of a file of yours",
    "use_network": "open a network connection",
    "reach_socket": "send to another program's unix socket",
    "signal_others": "send signals to other processes",
    "slow_others": "lower the priority of other processes",
    "read_others": "read another process's memory or environment",
    "shared_memory": "leave a shared memory segment behind",
    "hidden_memory": "hold memory that no process shows (CUDA may; it is watched over the whole machine)",
    "new_process": "start a process (builds may)",
    "leave_daemon": "leave a process behind",
}
_ALLOWED_TO_BUILDS = {"new_process"}
_ALLOWED_WITH_GPU = {"hidden_memory"}
_DAEMON_S = 1.0


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found."""

    level: str
    """S2 when every attack failed, S1 when the files of the user stayed unread, else S0."""
    findings: tuple[str, ...]
    """One sentence per attack that succeeded."""
    own_user: bool
    """Whether candidates run as a user of their own."""


def probe(zygote: Zygote, *, gpu: bool = False) -> Probe:
    """Attacks the sandbox of a run and of a build; `gpu` that of a run on a GPU too, with a CUDA context where the
    zygote has a GPU.

    Raises JudgeError when the attacker cannot even start.
    """
    kinds = {"run": (False, False), "build": (True, False), **({"run on a GPU": (False, True)} if gpu else {})}
    succeeded: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory(prefix="canary-", dir=live_dir()) as folder, _listener() as port:
        canary = Path(folder) / "secret"
        canary.write_text(secrets.token_hex(16))
        canary.chmod(0o600)
        with _mailbox(folder) as mailbox:
            for kind, (processes, on_gpu) in kinds.items():
                device = zygote.device if on_gpu else "cpu"
                spec = {"secret": str(canary), "outside": folder, "port": port, "victim": os.getpid(), "device": device}
                policy = dataclasses.replace(private_policy((), processes=processes), gpu=on_gpu)
                allowed = _ALLOWED_TO_BUILDS if processes else _ALLOWED_WITH_GPU if on_gpu else set()
                succeeded[kind] = _attack(zygote, {**spec, "mailbox": mailbox}, policy) - allowed
    everything = set().union(*succeeded.values())
    findings = tuple(f"a {kind} can {ATTEMPTS[name]}" for kind, names in succeeded.items() for name in sorted(names))
    level = "S2" if not everything else "S0" if everything & {"read_secret", "write_outside"} else "S1"
    policy = private_policy(())
    os.rmdir(policy.private_dir)
    return Probe(level, findings, policy.uid is not None)


def measure(*, gpu: bool = False) -> Probe:
    """The probe with a zygote of its own, for `kb-evolve doctor`: a few seconds. `gpu` attacks runs on cuda:0 too."""
    zygote = Zygote(1, "cuda:0" if gpu else "cpu")
    try:
        return probe(zygote, gpu=gpu)
    except JudgeError as error:
        return Probe("S0", (str(error),), False)
    finally:
        zygote.close()


def _attack(zygote: Zygote, spec: dict[str, Any], policy: Policy) -> set[str]:
    child = zygote.spawn("attack", spec, policy)
    child.ended.wait(30)
    log = child.log()
    child.discard()
    try:
        daemon = {"leave_daemon"} if _is_left(child.pid) else set()
        return set(json.loads(log.strip().splitlines()[-1])) | daemon
    except (ValueError, IndexError) as error:
        raise JudgeError(
            f"the sandbox cannot be put up here ({log.strip()[-300:] or child.death()}); "
            "run inside a newer kernel or container, or say --sandbox none to run candidates unprotected"
        ) from error


def _is_left(session: int) -> bool:
    """Whether a process of a killed child's session is still alive after _DAEMON_S."""
    deadline = time.monotonic() + _DAEMON_S
    while True:
        alive = False
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    stat = Path("/proc", name, "stat").read_text()
                    fields = stat[stat.rindex(")") + 2 :].split()
                    alive = alive or (int(fields[3]) == session and fields[0] not in "ZX")
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.02)


def attack(spec: dict[str, Any]) -> list[str]:
    """Runs inside the fence: the names of ATTEMPTS that succeed."""
    if spec["device"] != "cpu":
        from fitness.gpu import memory

        memory.use(spec["device"])
    succeeded = [name for name, attempt in _ATTACKS.items() if _succeeds(attempt, spec)]
    with contextlib.suppress(OSError):
        _leave_daemon()
    return succeeded


def _succeeds(attempt: Callable[[dict[str, Any]], bool], spec: dict[str, Any]) -> bool:
    try:
        return attempt(spec)
    except OSError:
        return False


def _read_secret(spec: dict[str, Any]) -> bool:
    return bool(Path(spec["secret"]).read_text())


def _write_outside(spec: dict[str, Any]) -> bool:
    for folder in (spec["outside"], "/tmp", "/var/tmp", "/dev/shm"):
        with contextlib.suppress(OSError):
            path = Path(folder) / f"kb-attack-{os.getpid()}"
            path.write_text("x")
            path.unlink()
            return True
    return False


def _use_network(spec: dict[str, Any]) -> bool:
    with socket.create_connection(("127.0.0.1", spec["port"]), timeout=2):
        return True


def _change_metadata(spec: dict[str, Any]) -> bool:
    os.chmod(spec["secret"], 0o640)
    return os.stat(spec["secret"]).st_mode & 0o777 == 0o640


def _reach_socket(spec: dict[str, Any]) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as one:
            one.connect(spec["mailbox"])
            return True
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        return one.sendto(b"x", spec["mailbox"]) > 0


def _slow_others(spec: dict[str, Any]) -> bool:
    before = os.getpriority(os.PRIO_PROCESS, spec["victim"])
    os.setpriority(os.PRIO_PROCESS, spec["victim"], before)
    return True


def _hidden_memory(spec: dict[str, Any]) -> bool:
    del spec
    with contextlib.suppress(OSError):
        os.close(os.memfd_create("kb-attack"))
        return True
    mmap.mmap(-1, 4096).close()  # shared and anonymous
    return True


def _leave_daemon() -> None:
    """A grandchild in what it takes for a session of its own, without any descriptor."""
    if os.fork() == 0:
        os.setsid()
        os.closerange(0, 512)
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)


def _signal_others(spec: dict[str, Any]) -> bool:
    os.kill(spec["victim"], 0)
    return True


def _read_others(spec: dict[str, Any]) -> bool:
    for name in ("environ", "mem"):
        with contextlib.suppress(OSError), open(f"/proc/{spec['victim']}/{name}", "rb"):
            return True
    return False


def _shared_memory(spec: dict[str, Any]) -> bool:
    libc = ctypes.CDLL(None)
    identifier = libc.shmget(0, 4096, 0o1600)
    if identifier >= 0:
        libc.shmctl(identifier, 0, None)
    return identifier >= 0


def _new_process(spec: dict[str, Any]) -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


_ATTACKS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "read_secret": _read_secret,
    "write_outside": _write_outside,
    "change_metadata": _change_metadata,
    "use_network": _use_network,
    "reach_socket": _reach_socket,
    "signal_others": _signal_others,
    "slow_others": _slow_others,
    "read_others": _read_others,
    "shared_memory": _shared_memory,
    "hidden_memory": _hidden_memory,
    "new_process": _new_process,
}


@contextlib.contextmanager
def _listener() -> Any:
    """A real port on loopback that a connection would reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def _mailbox(folder: str) -> Any:
    """A datagram socket with a path that anybody may write to."""
    path = os.path.join(folder, "mailbox")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        os.chmod(folder, 0o711)
        os.chmod(path, 0o777)
        yield path
