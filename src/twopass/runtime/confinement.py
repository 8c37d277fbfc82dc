"""Keep a page worker that a malicious document has taken over away from the credentials of other processes.

Page workers run as the same user as the process that starts them, so that Linux would let them read its environment
and memory below /proc. Everything here works without privileges, as far as the kernel has it.
"""

from __future__ import annotations

import ctypes
import os

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38  # sys/prctl.h
_CAPABILITY_VERSION = 0x20080522  # linux/capability.h
_READ_ANY_FILE = 1 << 1 | 1 << 2  # root's documents may belong to other users; root keeps no other capability
CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # Landlock's system calls, on every architecture
QUERY_VERSION, _PATH_BENEATH = 1, 1  # linux/landlock.h
_REFER = 1 << 13  # moving files between folders
_TCP = 1 << 0 | 1 << 1  # listening and connecting
_ABSTRACT_SOCKETS_AND_SIGNALS = 1 << 0 | 1 << 1
_WITH_REFER, _WITH_TCP, _WITH_SCOPES = 2, 4, 6  # the versions of Landlock that have these: Linux 5.19, 6.7 and 6.12


class _Ruleset(ctypes.Structure):
    """What is denied, unless a rule allows it."""

    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


class _Capabilities(ctypes.Structure):
    """32 of them; the kernel takes two such words."""

    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


class _PathRule(ctypes.Structure):
    """What is allowed in a folder."""

    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def confine() -> None:
    """In a page worker: deny it other processes' memory, signals to them and TCP, and more privileges by setuid files.

    A process in a Landlock domain may not trace processes outside it, which includes reading their environment. Before
    threads start: only they inherit the domain.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    _drop_capabilities(libc)
    _enter_domain(libc)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    header, held = _CapabilityHeader(_CAPABILITY_VERSION, 0), (_Capabilities * 2)()
    libc.capget(ctypes.byref(header), held)
    kept = held[0].permitted & _READ_ANY_FILE
    libc.capset(ctypes.byref(header), (_Capabilities * 2)(_Capabilities(kept, kept, 0)))


def _enter_domain(libc: ctypes.CDLL) -> None:
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), QUERY_VERSION)  # -1 without Landlock
    if version < _WITH_REFER:  # the first version always denies moves between folders, which caches of kernels need
        return
    denied = _Ruleset(
        files=_REFER,
        network=_TCP if version >= _WITH_TCP else 0,
        scoped=_ABSTRACT_SOCKETS_AND_SIGNALS if version >= _WITH_SCOPES else 0,
    )
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(denied), ctypes.c_size_t(ctypes.sizeof(denied)), 0)
    root = os.open("/", os.O_PATH)
    libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(_PathRule(_REFER, root)), 0)
    libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(root)
    os.close(ruleset)


def hide_memory() -> None:
    """Deny other processes of the same user this one's environment and memory; core dumps are not written, either.

    Programs that this process starts are not hidden. Root with CAP_SYS_PTRACE still may read everything.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, *map(ctypes.c_ulong, (0, 0, 0, 0)))
