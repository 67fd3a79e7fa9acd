"""The fence, attacked from inside real children."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from fitness import landlock, probe, seccomp, wire
from fitness.children import Zygote
from fitness.evaluation import JudgeError
from fitness.sandbox import clean_environment, state_dir
from fitness.session import private_policy


@pytest.fixture(scope="module")
def zygote():
    running = Zygote(1)
    yield running
    running.close()


def test_every_attack_of_the_probe_fails_here_and_the_level_says_so(zygote):
    found = probe.probe(zygote)
    assert (found.level, found.findings) == ("S2", ())


def test_what_a_run_on_a_gpu_can_do_lowers_the_level_too(zygote, monkeypatch):
    attack = probe._attack
    unfenced_gpu = lambda zygote, spec, policy: attack(  # noqa: E731
        zygote, spec, dataclasses.replace(policy, fenced=not policy.gpu)
    )
    monkeypatch.setattr(probe, "_attack", unfenced_gpu)
    assert probe.probe(zygote).level == "S2"
    found = probe.probe(zygote, gpu=True)
    assert found.level == "S0"
    assert all(finding.startswith("a run on a GPU can ") for finding in found.findings)


def _targets(folder: Path) -> dict[str, object]:
    (folder / "secret").write_text("hush")
    return {
        "secret": str(folder / "secret"),
        "outside": "/tmp",
        "port": 9,
        "victim": os.getpid(),
        "mailbox": str(folder / "mailbox"),
        "device": "cpu",
    }


def test_the_same_attacks_succeed_without_the_fence(zygote, tmp_path):
    child = zygote.spawn(
        "attack",
        _targets(tmp_path),
        private_policy((), processes=True, fenced=False),
    )
    child.ended.wait(30)
    log = child.log()
    child.discard()
    everything = set(probe.ATTEMPTS) - {"use_network", "reach_socket", "leave_daemon"}  # nobody listens here
    assert everything <= set(json.loads(log.splitlines()[-1]))


def test_a_run_on_a_gpu_may_have_hidden_memory_and_no_other_attack_succeeds(zygote, tmp_path):
    policy = dataclasses.replace(private_policy(()), gpu=True)
    child = zygote.spawn("attack", _targets(tmp_path), policy)
    child.ended.wait(30)
    log = child.log()
    child.discard()
    assert json.loads(log.splitlines()[-1]) == ["hidden_memory"]


def test_the_environment_of_a_child_holds_no_key(monkeypatch, tmp_path):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    assert "sk-secret" not in str(clean_environment(str(tmp_path), 2))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take a user that the system does not know")
def test_a_library_that_asks_for_the_users_name_gets_one(tmp_path):
    asked = "import getpass, os, pwd; os.setuid(1_801_594_387); print(getpass.getuser())"
    told = subprocess.run([sys.executable, "-c", asked], env=clean_environment(str(tmp_path), 2), capture_output=True)
    assert told.stdout.strip() == b"kb_evolve", told.stderr


@pytest.mark.parametrize("bind_threads", [False, True])
def test_children_may_use_every_cpu_unless_threads_are_bound(tmp_path, bind_threads):
    cpus = os.sched_getaffinity(0)
    running = Zygote(len(cpus), bind_threads=bind_threads)
    try:
        child = running.spawn("attack", _targets(tmp_path), private_policy(()))  # answers once torch is there
        assert os.sched_getaffinity(running._process.pid) == ({min(cpus)} if bind_threads else cpus)
        child.discard()
    finally:
        running.close()


def test_a_child_that_ends_leaves_no_folder_behind(zygote, tmp_path):
    policy = private_policy(())
    child = zygote.spawn("attack", _targets(tmp_path), policy)
    assert child.ended.wait(30)
    assert os.WIFEXITED(child.status)
    child.discard()
    assert not Path(policy.private_dir).exists()


def test_the_zygote_and_its_children_end_when_their_parent_is_killed(tmp_path):
    script = (
        "import time; from fitness.children import Zygote; from fitness.session import private_policy\n"
        "z = Zygote(1); z.spawn('oracle', {'problem_path': '/dev/stdin'}, private_policy(()), [0, 1, 0, 0])\n"
        "print(z._process.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    zygote_pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(zygote_pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(zygote_pid)


def test_a_state_folder_of_somebody_else_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"kb_evolve-{os.getuid()}").symlink_to("/etc")
    with pytest.raises((JudgeError, FileExistsError)):
        state_dir()


def test_sealed_memory_cannot_be_mapped_writable_by_whoever_holds_its_descriptor():
    segment = wire.Segment(4096)
    segment.seal()
    with pytest.raises(PermissionError):
        wire.Segment(descriptor=os.dup(segment.fd))
    segment.memory[:4] = b"mine"
    assert wire.Segment(descriptor=os.dup(segment.fd), writable=False).memory[:4] == b"mine"


def test_a_reply_of_rubbish_is_refused():
    with pytest.raises(ValueError):
        wire.unpack_reply(b"\xff" * wire.REPLY_BYTES)
    reply = wire.unpack_reply(wire.pack_reply(wire.DONE, 3, [wire.Output(1, 8, "float32", (2, 1))], "text"))
    assert (reply.code, reply.text, reply.outputs[0].shape) == (3, "text", (2, 1))


def test_this_kernel_and_machine_offer_what_the_fence_needs():
    assert landlock.abi() >= 1
    assert seccomp.supported()


def test_what_a_killed_process_left_behind_is_removed_by_the_next_one():
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = state_dir() / f"live-{gone.pid}"
    left.mkdir()
    (left / "rest").write_text("x")
    script = "from fitness.sandbox import live_dir; print(live_dir())"
    fresh = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip()
    assert not left.exists()
    assert not Path(fresh).exists()


WITHOUT_LANDLOCK = """
import ctypes, errno, os, struct
from fitness import seccomp
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
lines = [seccomp._statement(0x20, 0), *seccomp._rule((444, 444), 0x50000 | errno.ENOSYS)]
lines += [seccomp._statement(0x06, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(lines))
header = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(program))
assert ctypes.CDLL(None).prctl(22, 2, ctypes.c_char_p(header), 0, 0) == 0

from fitness.evaluation import Job, JudgeError
from fitness.workbench import Workbench
source = "import torch\\nModel = ModelNew = torch.nn.Identity\\ndef get_inputs(): return [torch.rand(1024)]\\n"
source += "def get_init_inputs(): return []\\n"
with Workbench(sandbox={sandbox!r}) as workbench:
    try:
        print(workbench.evaluate(Job("identity", source, source)).sandbox)
    except JudgeError as error:
        print("refused:", error)
"""


@pytest.mark.parametrize(("sandbox", "words"), [("auto", ("refused", "--sandbox none")), ("none", ("S0",))])
def test_a_kernel_without_landlock_is_refused_unless_the_user_says_none(sandbox, words):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LANDLOCK.replace("{sandbox!r}", repr(sandbox))], capture_output=True, text=True
    )
    assert all(word in done.stdout for word in words), done.stdout + done.stderr
