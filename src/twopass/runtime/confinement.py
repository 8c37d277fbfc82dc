"""Keep a process that a malicious document has taken over away from the credentials of other processes.

Page workers and LibreOffice run as the same user as the process that starts them, so that Linux would let them read
its environment and memory below /proc. Everything here works without privileges, as far as the kernel has it.
"""

from __future__ import annotations

import ctypes
import errno
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

_READ_FILES = 1 << 0 | 1 << 2 | 1 << 3  # execute and read files, list folders
_WRITE_FILE = 1 << 1
_MAKE_SOCKETS = 1 << 5 | 1 << 9  # and remove them
_ALL_FILES = (1 << 14) - 1  # all rights of the second version
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2  # rights that a rule about a single file may have
_SYSTEM_FOLDERS = (
    *("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/fonts", "/var/cache/fontconfig"),
    *("/etc/libreoffice", "/var/lib/libreoffice", "/var/spool/libreoffice"),
)
_FONT_FOLDERS = ("~/.fonts", "~/.local/share/fonts")

_PR_SET_SECCOMP, _SECCOMP_FILTER = 22, 2  # sys/prctl.h, linux/seccomp.h
_LOAD, _RETURN, _IS_EQUAL, _IS_AT_LEAST = 0x20, 0x06, 0x15, 0x35  # linux/bpf_common.h
_AT_NUMBER, _AT_ARCHITECTURE, _AT_FIRST_ARGUMENT = 0, 4, 16  # in linux/seccomp.h's seccomp_data
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_AF_UNIX, _IO_URING_SETUP, _X32_CALLS = 1, 425, 0x40000000  # io_uring opens sockets without the call
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # linux/audit.h, and the number of socket()


class _Ruleset(ctypes.Structure):
    """What is denied, unless a rule allows it."""

    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


class _Capabilities(ctypes.Structure):
    """32 of them; the kernel takes two such words."""

    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16), ("true", ctypes.c_uint8), ("false", ctypes.c_uint8), ("number", ctypes.c_uint32),
    )  # fmt: skip


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.c_void_p))


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


def deny_network() -> bool:
    """Deny this process, and what it starts, every socket that is not of this machine; returns whether it worked.

    A filter of system calls, which the kernel has where it lacks Landlock, and which covers UDP, so names, as well.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return False
    libc = ctypes.CDLL(None)
    program = _write_filter(*machine)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    filters = (_Instruction * len(program))(*(_Instruction(*line) for line in program))
    wanted = _Filter(len(program), ctypes.cast(filters, ctypes.c_void_p))
    no_argument = ctypes.c_ulong(0)
    return not libc.prctl(
        _PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_FILTER), ctypes.byref(wanted), no_argument, no_argument
    )


def _write_filter(architecture: int, socket: int) -> list[tuple[int, int, int, int]]:
    """Berkeley packet filter: each line has an operation, lines to skip if it is true and if not, and a number."""
    return [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_IS_EQUAL, 0, 6, architecture),
        (_LOAD, 0, 0, _AT_NUMBER),
        (_IS_AT_LEAST, 4, 0, _X32_CALLS),
        (_IS_EQUAL, 3, 0, _IO_URING_SETUP),
        (_IS_EQUAL, 0, 3, socket),
        (_LOAD, 0, 0, _AT_FIRST_ARGUMENT),
        (_IS_EQUAL, 1, 0, _AF_UNIX),
        (_RETURN, 0, 0, _FAIL | errno.EACCES),
        (_RETURN, 0, 0, _ALLOW),
    ]


def limit_files(folder: str, *readable: str) -> None:
    """Deny this process, and what it starts, all files but those in the folder; it may read those of the system."""
    libc = ctypes.CDLL(None)
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), QUERY_VERSION)
    if version < _WITH_REFER:
        return
    denied = _Ruleset(files=_ALL_FILES, network=0, scoped=0)
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(denied), ctypes.c_size_t(8), 0)
    places = {folder: _ALL_FILES, "/dev": _READ_FILES | _WRITE_FILE, "/tmp": _MAKE_SOCKETS}
    places |= dict.fromkeys((*_SYSTEM_FOLDERS, *map(os.path.expanduser, _FONT_FOLDERS), *readable), _READ_FILES)
    for place, allowed in places.items():
        _allow(libc, ruleset, place, allowed)
    libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, place: str, allowed: int) -> None:
    try:
        descriptor = os.open(place, os.O_PATH)
    except OSError:
        return
    rights = allowed if os.path.isdir(place) else allowed & _OF_FILES
    libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(_PathRule(rights, descriptor)), 0)
    os.close(descriptor)
