"""Seccomp: a system-call filter that a process puts on itself and on all its descendants.

Written against linux/seccomp.h and linux/filter.h, with no library: the judge needs torch alone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_LD, _JEQ, _JSET, _JGE, _RET = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NR, _ARCH, _ARG0_LOW = 0, 4, 16
_CLONE_THREAD = 0x00010000
_NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET}."""

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# name: (x86_64, aarch64); None where the architecture has no such call
_NUMBERS: dict[str, tuple[int | None, int]] = {
    "socket": (41, 198),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_setup": (206, 0),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "swapon": (167, 224),
    "reboot": (169, 142),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "open_by_handle_at": (304, 265),
}
_FAKED = {"setsid": (112, 157), "setpgid": (109, 154)}
_NEW_PROGRAM = {"execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None)}
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_KILL = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131)}


def supported() -> bool:
    """Whether a filter can be written for this machine's architecture."""
    return platform.machine() in _AUDIT_ARCH


def restrict(*, processes: bool, own_signals_only: bool) -> None:
    """Denies network, tracing, namespaces, kernel asynchronous I/O and SysV memory to this process.

    `processes=False` also denies new processes and new programs (threads stay allowed).
    `own_signals_only` denies signals to any other process (for kernels whose Landlock does not scope them).
    setsid and setpgid report success without effect, so that one killpg reaches every descendant.
    Raises OSError when the kernel refuses the filter.
    """
    program = _program(processes, own_signals_only, os.getpid())
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(header), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def _program(processes: bool, own_signals_only: bool, pid: int) -> bytes:
    column = 0 if platform.machine() == "x86_64" else 1
    lines = [
        _statement(_LD, _ARCH),
        _jump(_JEQ, _AUDIT_ARCH[platform.machine()], 1, 0),
        _statement(_RET, _KILL_PROCESS),
        _statement(_LD, _NR),
    ]
    if column == 0:  # the x32 calling convention would slip past the numbers below
        lines += [_jump(_JGE, 0x40000000, 0, 1), _statement(_RET, _ERRNO | errno.ENOSYS)]
    denied = {**_NUMBERS, **({} if processes else _NEW_PROGRAM)}
    for numbers in denied.values():
        lines += _answer(numbers[column], errno.EPERM)
    for numbers in _FAKED.values():
        lines += _answer(numbers[column], 0)
    lines += _answer(_CLONE3[column], errno.ENOSYS)  # its flags lie behind a pointer: make libc use clone
    lines += _clone(_CLONE[column], processes)
    if own_signals_only:
        for numbers in _KILL.values():
            lines += _signal(numbers[column], pid)
    lines.append(_statement(_RET, _ALLOW))
    return b"".join(lines)


def _answer(number: int | None, code: int) -> list[bytes]:
    if number is None:
        return []
    return [_jump(_JEQ, number, 0, 1), _statement(_RET, _ERRNO | code)]


def _clone(number: int, processes: bool) -> list[bytes]:
    """Denies clone into new namespaces, and without CLONE_THREAD where no processes are allowed."""
    body = [_statement(_LD, _ARG0_LOW)]
    if processes:
        body += [_jump(_JSET, _NAMESPACE_FLAGS, 0, 1), _statement(_RET, _ERRNO | errno.EPERM)]
    else:
        body += [_jump(_JSET, _CLONE_THREAD, 1, 0), _statement(_RET, _ERRNO | errno.EPERM)]
    body += [_statement(_RET, _ALLOW)]
    return [_jump(_JEQ, number, 0, len(body)), *body]


def _signal(number: int, pid: int) -> list[bytes]:
    """Allows a signal call only when its first argument is the process itself."""
    body = [
        _statement(_LD, _ARG0_LOW),
        _jump(_JEQ, pid, 1, 0),
        _statement(_RET, _ERRNO | errno.EPERM),
        _statement(_RET, _ALLOW),
    ]
    return [_jump(_JEQ, number, 0, len(body)), *body]


def _statement(code: int, value: int) -> bytes:
    return struct.pack("HBBI", code, 0, 0, value)


def _jump(code: int, value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
