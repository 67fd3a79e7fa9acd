"""The sandbox's level, measured by attack: what candidate code could do here, tried out by code of ours."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness.children import Zygote
from fitness.evaluation import JudgeError
from fitness.sandbox import live_dir
from fitness.session import private_policy

ATTEMPTS = {
    "read_secret": "read a file of yours outside the sandbox",
    "write_outside": "write outside its own folder",
    "use_network": "open a network connection",
    "signal_others": "send signals to other processes",
    "read_others": "read another process's memory or environment",
    "shared_memory": "leave a shared memory segment behind",
    "new_process": "start a process (builds may)",
}
_ALLOWED_TO_BUILDS = {"new_process"}


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found."""

    level: str
    """S2 when every attack failed, S1 when the files of the user stayed unread, else S0."""
    findings: tuple[str, ...]
    """One sentence per attack that succeeded."""
    own_user: bool
    """Whether candidates run as a user of their own."""


def probe(zygote: Zygote) -> Probe:
    """Attacks the sandbox of a run and of a build. Raises JudgeError when the attacker cannot even start."""
    succeeded: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory(prefix="canary-", dir=live_dir()) as folder, _listener() as port:
        canary = Path(folder) / "secret"
        canary.write_text(secrets.token_hex(16))
        canary.chmod(0o600)
        for kind, processes in (("run", False), ("build", True)):
            spec = {"secret": str(canary), "outside": folder, "port": port, "victim": os.getpid()}
            succeeded[kind] = _attack(zygote, spec, processes) - (_ALLOWED_TO_BUILDS if processes else set())
    everything = succeeded["run"] | succeeded["build"]
    findings = tuple(f"a {kind} can {ATTEMPTS[name]}" for kind, names in succeeded.items() for name in sorted(names))
    level = "S2" if not everything else "S0" if everything & {"read_secret", "write_outside"} else "S1"
    policy = private_policy(())
    os.rmdir(policy.private_dir)
    return Probe(level, findings, policy.uid is not None)


def measure() -> Probe:
    """The probe with a zygote of its own, for `kb-evolve doctor`: a few seconds."""
    zygote = Zygote(1)
    try:
        return probe(zygote)
    except JudgeError as error:
        return Probe("S0", (str(error),), False)
    finally:
        zygote.close()


def _attack(zygote: Zygote, spec: dict[str, Any], processes: bool) -> set[str]:
    child = zygote.spawn("attack", spec, private_policy((), processes=processes))
    child.ended.wait(30)
    log = child.log()
    child.discard()
    try:
        return set(json.loads(log.strip().splitlines()[-1]))
    except (ValueError, IndexError) as error:
        raise JudgeError(
            f"the sandbox cannot be put up here ({log.strip()[-300:] or child.death()}); "
            "run inside a newer kernel or container, or say --sandbox none to run candidates unprotected"
        ) from error


def attack(spec: dict[str, Any]) -> list[str]:
    """Runs inside the fence: the names of ATTEMPTS that succeed."""
    return [name for name, attempt in _ATTACKS.items() if _succeeds(attempt, spec)]


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
    "use_network": _use_network,
    "signal_others": _signal_others,
    "read_others": _read_others,
    "shared_memory": _shared_memory,
    "new_process": _new_process,
}


@contextlib.contextmanager
def _listener() -> Any:
    """A real port on loopback that a connection would reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
