"""Landlock: an unprivileged file-system and signal fence that a process puts around itself.

Constants: linux/landlock.h; ABI versions: https://docs.kernel.org/userspace-api/landlock.html.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_RULE_PATH_BENEATH = 1
_CREATE_RULESET_VERSION = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FS_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many of the access bits, counted from bit 0, an ABI knows (2 adds REFER, 3 TRUNCATE, 5 IOCTL_DEV)."""
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | 1 << 15
_NET_ALL = 0b11
_SCOPE_ALL = 0b11
"""Abstract unix sockets and signals, ABI 6."""


class _RulesetAttr(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The kernel's Landlock ABI version; 0 where Landlock is absent or switched off."""
    version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION))
    return max(int(version), 0)


def scopes_signals(version: int) -> bool:
    """Whether this ABI stops signals to processes outside the fence."""
    return version >= 6


def restrict(read: Sequence[str], write: Sequence[str]) -> int:
    """Fences the calling process: reads and executes under `read`, everything under `write`, nothing else.

    Returns the ABI in force. Needs no_new_privs to be set before. Paths that do not exist are left
    out. Raises OSError when the kernel has no Landlock or refuses.
    """
    version = abi()
    if version < 1:
        raise OSError(os.strerror(95), "this kernel offers no Landlock")
    rights = (1 << _FS_RIGHTS_BY_ABI.get(version, 16)) - 1
    attr = _RulesetAttr(rights, _NET_ALL if version >= 4 else 0, _SCOPE_ALL if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, ctypes.byref(attr), ctypes.c_size_t(size), ctypes.c_uint32(0)))
    try:
        for path in read:
            _allow(ruleset, path, EXECUTE | READ_FILE | READ_DIR)
        for path in write:
            _allow(ruleset, path, rights)
        _checked(_libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)))
    finally:
        os.close(ruleset)
    return version


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _FILE_RIGHTS
        rule = _PathBeneath(access, descriptor)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0)))
    finally:
        os.close(descriptor)


def _checked(outcome: int) -> int:
    if outcome < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return outcome
