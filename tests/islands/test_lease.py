"""One owner per run: the living keep it, the dead lose it, and who lost it can write no more."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from islands.lease import STALE_S, Lease, process_started, this_place, this_process
from islands.store import StoreError, open_store


def beat_at(path: Path) -> float:
    with sqlite3.connect(path) as raw:
        return raw.execute("SELECT beat_at FROM leases").fetchone()[0]


def test_a_second_process_is_refused_with_the_owners_pid_and_host(closed, fork, children):
    owner = fork(children.hold, closed)
    assert owner.said.readline() == "held\n"
    expected = rf"held by process {owner.pid} on {socket.gethostname()}"
    with pytest.raises(StoreError, match=expected), open_store(closed) as store, store.lease("run00000"):
        pass
    owner.end()
    with open_store(closed) as store, store.lease("run00000"):
        pass


def test_a_killed_owners_run_is_free_at_once_even_before_it_is_reaped(closed, fork, children):
    owner = fork(children.hold, closed)
    assert owner.said.readline() == "held\n"
    owner.kill()
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped
    with open_store(closed) as store, store.lease("run00000"):
        pass


def test_a_stopped_owner_still_owns(closed, fork, children):
    owner = fork(children.hold, closed)
    assert owner.said.readline() == "held\n"
    owner.kill(signal.SIGSTOP)
    with pytest.raises(StoreError, match="which lives"), open_store(closed) as store, store.lease("run00000"):
        pass


def test_the_same_process_cannot_hold_a_run_twice(store):
    with (
        store.lease("run00000"),
        pytest.raises(StoreError, match=f"process {os.getpid()}"),
        store.lease("run00000"),
    ):
        pass


def test_another_run_is_free(store, make):
    store.create_run(make.run("run00001", "other"))
    with store.lease("run00000"), store.lease("run00001"):
        store.add_event("run00001", "note", {})


def test_an_unknown_run_cannot_be_held(store):
    with pytest.raises(StoreError, match="not recorded"), store.lease("run99999"):
        pass


def test_a_reused_pid_is_not_the_owner(store):
    dead = dataclasses.replace(this_process(), process_started=1)
    store.take_lease("run00000", dead)
    with open_store(store.path) as other, other.lease("run00000"):
        pass


@pytest.mark.parametrize(("age_s", "free"), [(0, False), (STALE_S - 20, False), (STALE_S + 1, True), (-3600, False)])
def test_an_owner_on_another_host_lives_while_its_heartbeat_is_young(store, age_s, free):
    distant = dataclasses.replace(this_process(), place="elsewhere", host="far", beat_at=time.time() - age_s)
    store.take_lease("run00000", distant)
    with open_store(store.path) as other:
        if free:
            with other.lease("run00000"):
                pass
        else:
            with pytest.raises(StoreError, match="on far"), other.lease("run00000"):
                pass


def test_an_owner_that_lost_its_run_can_write_nothing_to_it(store, make):
    distant = dataclasses.replace(this_process(), place="elsewhere", beat_at=time.time() - STALE_S - 1)
    store.take_lease("run00000", distant)
    with open_store(store.path) as other, other.lease("run00000"):
        for write in (
            lambda: store.add_event("run00000", "late", {}),
            lambda: store.add_candidate("run00000", make.candidate(0)),
            lambda: store.open_attempt("run00000", 0, 0, "tune", ()),
            lambda: store.beat_lease("run00000"),
        ):
            with pytest.raises(StoreError, match="no longer owns run run00000"):
                write()
        store.release_lease("run00000")
        other.add_event("run00000", "mine", {})
    assert [event.kind for event in store.events("run00000")] == ["mine"]


def test_the_heartbeat_beats_by_itself(store):
    with Lease(store, "run00000", beat_every_s=0.005):
        first, deadline = beat_at(store.path), time.monotonic() + 20
        while beat_at(store.path) == first:
            assert time.monotonic() < deadline
            time.sleep(0.005)


def test_beating_renews_the_heartbeat(store):
    with store.lease("run00000") as lease:
        first = beat_at(store.path)
        lease.beat()
        assert beat_at(store.path) > first


def test_closing_the_store_gives_its_leases_back(path, make):
    store = open_store(path)
    store.create_run(make.run())
    with store.lease("run00000"):
        store.close()
        with open_store(path) as other, other.lease("run00000"):
            pass


def test_an_error_inside_the_block_is_the_one_that_comes_out(store):
    with pytest.raises(KeyError, match="mine"), store.lease("run00000"):
        raise KeyError("mine")
    with store.lease("run00000"):
        pass


def test_a_process_start_is_told_although_its_name_holds_spaces_and_parentheses(tmp_path):
    program = tmp_path / "a) S 1 (b"
    program.symlink_to(sys.executable)
    process = subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        started, ours = process_started(process.pid), process_started(os.getpid())
        assert started is not None and ours is not None and started >= ours
    finally:
        process.communicate(b"\n")
    assert process_started(process.pid) is None


def test_a_place_is_the_same_for_the_processes_of_one_machine():
    code = "from islands.lease import this_place; print(this_place())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=os.getcwd())
    assert said.stdout.strip() == this_place()
