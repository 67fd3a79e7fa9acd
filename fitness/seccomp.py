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
_LD, _AND, _JEQ, _JGE, _RET = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_REFUSE, _FAKE_SUCCESS, _UNKNOWN = _ERRNO | errno.EPERM, _ERRNO, _ERRNO | errno.ENOSYS
_NR, _ARCH, _ARGUMENTS = 0, 4, 16
_ALL_BITS = 0xFFFFFFFF
_CLONE_THREAD = 0x00010000
_NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET}."""

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPE_BITS = 1, 1, 5, 0xF
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_O_ACCMODE, _O_TRUNC = 0x3, 0x200
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20
_SIGNALLING_FCNTLS = (8, 10, 15, 1024, 1026)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY."""
_SIGNALLING_IOCTLS = (0x5452, 0x8901, 0x8902)
"""FIOASYNC, FIOSETOWN, SIOCSPGRP."""

Numbers = tuple[int | None, int | None]
"""A system call's number on x86_64 and aarch64; None where the architecture has no such call."""
Condition = tuple[int, int, int]
"""Argument index, mask, value: holds when the argument's low 32 bits, masked, equal the value."""

_DENIED: dict[str, Numbers] = {
    "connect": (42, 203),
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
    "truncate": (76, 45),  # before ABI 3 Landlock does not fence it
    "personality": (135, 92),
    "uselib": (134, None),
    "kcmp": (312, 272),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "memfd_secret": (447, 447),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    # a same-user process could slow the reference down with these
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}
_DENIED_WITHOUT_CUDA: dict[str, Numbers] = {
    # a timer's interrupt tells every epoll set that watches it: time of a CPU that no thread is charged for
    "timerfd_create": (283, 85),
    "signalfd": (282, None),
    "signalfd4": (289, 74),
    # which pages of a file are in memory: a note from one process to the next
    "fadvise64": (221, 223),
    "preadv2": (327, 286),
    "mincore": (27, 232),
    "cachestat": (451, 451),
}
"""Refused where a process's time on the CPUs is what is measured; CUDA's own library is left with them."""
_FAKED: dict[str, Numbers] = {
    "setsid": (112, 157),
    "setpgid": (109, 154),
    # Landlock fences no metadata: where candidates have no user of their own, these would reach the user's files
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}
_NEW_PROGRAM: dict[str, Numbers] = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
}
_SOCKET, _SOCKETPAIR, _PRCTL, _PRLIMIT = (41, 198), (53, 199), (157, 167), (302, 261)
_OPEN, _OPENAT, _OPENAT2 = (2, None), (257, 56), (437, 437)
_MMAP, _MEMFD_CREATE, _FCNTL, _IOCTL = (9, 222), (319, 279), (72, 25), (16, 29)
_CLONE, _CLONE3, _TIMER_CREATE = (56, 220), (435, 435), (222, 107)
_SIGNALS: dict[str, Numbers] = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
_PIDFD_SEND_SIGNAL = (424, 424)


def supported() -> bool:
    """Whether a filter can be written for this machine's architecture."""
    return platform.machine() in _AUDIT_ARCH


def restrict(*, processes: bool, own_signals_only: bool, unix_sockets: bool = False) -> None:
    """Denies network, tracing, namespaces, kernel asynchronous I/O and SysV memory to this process.

    `processes=False` also denies new processes and new programs (threads stay allowed).
    `own_signals_only` denies signals to any other process (for kernels whose Landlock does not scope them).
    `unix_sockets` allows what CUDA needs: a SOCK_SEQPACKET socket of AF_UNIX that can be bound and accept, but never
    connect (so no socket of the host is in reach), memory files, and shared anonymous memory. Memory of the last
    two kinds can be held without being resident: without CUDA nobody has it.
    setsid, setpgid, a new parent-death signal, hiding one's memory, and changes of a file's mode, owner, times and
    attributes report success without effect: one killpg reaches every descendant, the judge can read results without
    being root, and compilers that tidy their products go on.
    Raises OSError when the kernel refuses the filter.
    """
    program = _program(processes, own_signals_only, unix_sockets, os.getpid())
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(header), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def _program(processes: bool, own_signals_only: bool, unix_sockets: bool, pid: int) -> bytes:
    lines = [
        _statement(_LD, _ARCH),
        _jump(_JEQ, _AUDIT_ARCH[platform.machine()], 1, 0),
        _statement(_RET, _KILL_PROCESS),
        _statement(_LD, _NR),
    ]
    if platform.machine() == "x86_64":  # the x32 calling convention would slip past the numbers below
        lines += [_jump(_JGE, 0x40000000, 0, 1), _statement(_RET, _UNKNOWN)]
    denied = {**_DENIED, **({} if processes else _NEW_PROGRAM), **({} if unix_sockets else _DENIED_WITHOUT_CUDA)}
    rules = [_rule(numbers, _REFUSE) for numbers in denied.values()]
    rules += [_rule(numbers, _FAKE_SUCCESS) for numbers in _FAKED.values()]
    rules += _sockets(unix_sockets) + _files() + _wake_ups() + _clone(processes)
    rules += [
        _rule(_PRCTL, _FAKE_SUCCESS, (0, _ALL_BITS, _PR_SET_PDEATHSIG)),
        _rule(_PRCTL, _FAKE_SUCCESS, (0, _ALL_BITS, _PR_SET_DUMPABLE)),  # else no judge without root reads its results
        _rule(_PRLIMIT, _ALLOW, (0, _ALL_BITS, 0)),
        _rule(_PRLIMIT, _REFUSE),
    ]
    if not unix_sockets:
        shared = _MAP_SHARED | _MAP_ANONYMOUS
        rules += [_rule(_MEMFD_CREATE, _REFUSE), _rule(_MMAP, _REFUSE, (3, shared, shared))]
    if own_signals_only:
        rules += _signals(pid)
    for rule in rules:
        lines += rule
    lines.append(_statement(_RET, _ALLOW))
    return b"".join(lines)


def _sockets(unix_sockets: bool) -> list[list[bytes]]:
    """No socket but pairs (of types whose messages go nowhere but to the other end) and, if asked for, SEQPACKET."""
    pair = (0, _ALL_BITS, _AF_UNIX)
    allowed = [_rule(_SOCKETPAIR, _ALLOW, pair, (1, _SOCK_TYPE_BITS, kind)) for kind in (_SOCK_STREAM, _SOCK_SEQPACKET)]
    if unix_sockets:
        allowed.append(_rule(_SOCKET, _ALLOW, pair, (1, _SOCK_TYPE_BITS, _SOCK_SEQPACKET)))
    return [*allowed, _rule(_SOCKETPAIR, _REFUSE), _rule(_SOCKET, _REFUSE)]


def _files() -> list[list[bytes]]:
    """No emptying of files that are opened only for reading: before ABI 3 Landlock does not fence it."""
    return [
        _rule(_OPEN, _REFUSE, (1, _O_ACCMODE | _O_TRUNC, _O_TRUNC)),
        _rule(_OPENAT, _REFUSE, (2, _O_ACCMODE | _O_TRUNC, _O_TRUNC)),
        _rule(_OPENAT2, _UNKNOWN),  # its flags lie behind a pointer: callers fall back to openat
    ]


def _clone(processes: bool) -> list[list[bytes]]:
    """Denies clone into new namespaces, and without CLONE_THREAD where no processes are allowed."""
    unknown = _rule(_CLONE3, _UNKNOWN)  # its flags lie behind a pointer: make libc use clone
    if not processes:
        return [unknown, _rule(_CLONE, _REFUSE, (0, _CLONE_THREAD, 0))]
    bits = [1 << bit for bit in range(32) if _NAMESPACE_FLAGS >> bit & 1]
    return [unknown, *(_rule(_CLONE, _REFUSE, (0, bit, bit)) for bit in bits)]


def _signals(pid: int) -> list[list[bytes]]:
    """Allows a signal call only when its first argument is the process itself; no other way to send one."""
    rules = [_rule(_PIDFD_SEND_SIGNAL, _REFUSE)]
    for numbers in _SIGNALS.values():
        rules += [_rule(numbers, _ALLOW, (0, _ALL_BITS, pid)), _rule(numbers, _REFUSE)]
    return rules


def _wake_ups() -> list[list[bytes]]:
    """No signals that the kernel sends later, by a timer or an event: SIGCONT would wake a process that we stopped."""
    rules = [_rule(_TIMER_CREATE, _REFUSE)]
    rules += [_rule(_FCNTL, _REFUSE, (1, _ALL_BITS, command)) for command in _SIGNALLING_FCNTLS]
    rules += [_rule(_IOCTL, _REFUSE, (1, _ALL_BITS, command)) for command in _SIGNALLING_IOCTLS]
    return rules


def _rule(numbers: Numbers, answer: int, *conditions: Condition) -> list[bytes]:
    """Gives `answer` to this system call when all conditions hold; otherwise the next rule decides."""
    number = numbers[0 if platform.machine() == "x86_64" else 1]
    if number is None:
        return []
    if not conditions:
        return [_jump(_JEQ, number, 0, 1), _statement(_RET, answer)]
    body: list[bytes] = []
    for index, (argument, mask, value) in enumerate(conditions):
        to_end = 3 * (len(conditions) - 1 - index) + 1
        body += [
            _statement(_LD, _ARGUMENTS + 8 * argument),
            _statement(_AND, mask),
            _jump(_JEQ, value, 0, to_end),
        ]
    body += [_statement(_RET, answer), _statement(_LD, _NR)]
    return [_jump(_JEQ, number, 0, len(body)), *body]


def _statement(code: int, value: int) -> bytes:
    return struct.pack("HBBI", code, 0, 0, value)


def _jump(code: int, value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
