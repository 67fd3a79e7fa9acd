"""What a candidate could do between two calls, or tell its next process, gains it nothing."""

from __future__ import annotations

import fcntl
import os
import random
import struct
import subprocess
import sys

import pytest

from fitness import rounds, wire
from fitness.calls import Call
from fitness.draws import Draw, Pool
from fitness.gpu.session import GpuSession
from fitness.session import Session
from fitness.wire import Segment

F_OFD_SETLK = 37
LOCK = struct.Struct("hhqqi4x")


def some_draws(first: int) -> list[Draw]:
    return [Draw(f"own {number}", [], []) for number in range(first, first + 4)]


def shown(pool: Pool) -> set[str]:
    return {draw.family for batch, _ in pool.batches(random.Random(0)) for draw in batch}


def test_on_fresh_draws_no_process_sees_what_another_saw():
    pools = iter([some_draws(4), some_draws(8)])
    pool = Pool(some_draws(0), [], 2, renew=lambda: next(pools))
    seen = [shown(pool) for _ in range(3)]
    assert all(len(families) == 4 for families in seen) and len(set.union(*seen)) == 12


def test_a_pool_that_is_not_renewed_shows_the_same_to_each_process():
    pool = Pool(some_draws(0), [], 2)
    assert shown(pool) == shown(pool)


@pytest.mark.parametrize(("release_ms", "charged_ms"), [(0.1, 0.0), (0.58, 0.0), (0.7, 0.6), (5.1, 5.0)])
def test_work_put_off_until_the_outputs_are_let_go_is_charged(release_ms, charged_ms):
    theirs, ours = Call(10.0, [], release_ms=release_ms), Call(8.0, [], release_ms=0.1)
    assert rounds._put_off_ms(theirs, ours, Session.put_off_share) == pytest.approx(charged_ms)
    assert rounds._put_off_ms(theirs, ours, GpuSession.put_off_share) == pytest.approx(release_ms - 0.1)


def locked(descriptor: int) -> bool:
    """Whether somebody else holds a lock on the file behind a descriptor."""
    answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, LOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
    return LOCK.unpack(answer)[0] != fcntl.F_UNLCK


def test_locks_on_the_weights_end_with_the_process_that_took_them():
    segment = Segment(4096)
    with segment.opened_anew() as mine:
        fcntl.fcntl(mine, F_OFD_SETLK, LOCK.pack(fcntl.F_RDLCK, 0, 64, 1, 0))
        assert locked(segment.fd)
        with pytest.raises(OSError):
            os.write(mine, b"x")
    assert not locked(segment.fd)
    segment.close()


def test_what_a_runner_says_comes_as_one_printable_line():
    body = wire.pack_reply(wire.FAILED, text="no\x1b[2J\r\nverdict:\tcorrect\x07 \u202e")
    assert wire.unpack_reply(body).text == "no?[2J verdict: correct? ?"


CALLS = """
import ctypes, os, sys
from fitness import seccomp
libc = ctypes.CDLL(None, use_errno=True)
page = ctypes.create_string_buffer(1)
file = os.open(sys.executable, os.O_RDONLY)
def answers():
    return [
        libc.timerfd_create(1, 0) >= 0,
        libc.signalfd(-1, page, 0) >= 0 or ctypes.get_errno() != 1,
        libc.posix_fadvise(file, 0, 0, 4) == 0,
        libc.mincore(None, 0, page) == 0 or ctypes.get_errno() != 1,
        libc.syscall(327 if os.uname().machine == "x86_64" else 286, file, None, 0, 0, 0, 8) == 0,
    ]
before = answers()
seccomp.restrict(processes=False, own_signals_only=False, unix_sockets=sys.argv[1] == "cuda")
print(before, answers())
"""


@pytest.mark.parametrize(("kind", "after"), [("cpu", [False] * 5), ("cuda", [True] * 5)])
def test_no_timer_interrupts_and_no_look_at_the_page_cache_without_cuda(kind, after):
    told = subprocess.run([sys.executable, "-c", CALLS, kind], capture_output=True, text=True)
    assert told.stdout.strip() == f"{[True] * 5} {after}", told
