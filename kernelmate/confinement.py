"""Permanent restrictions of a process by Linux: its attributes, its file writes (landlock), its system calls (seccomp).

It can also kill everything that a process started (`kill_descendants`).

Each is applied if the kernel supports it; the functions return the names of those in force. System call numbers
and layouts are those of the kernel's headers: `<linux/prctl.h>`, `<linux/capability.h>`, `<linux/landlock.h>`,
`<linux/seccomp.h>`, `<asm/unistd.h>`. `python -m kernelmate.confinement` applies all of them to itself and prints what is in force,
for `doctor`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import json
import os
import platform
import signal
import struct
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

MEASURES = {
    "dumpable": "other processes of the user cannot trace the worker or read its memory",
    "no-new-privs": "programs gain no rights by being started",
    "subreaper": "processes that leave the worker's group are found and ended with it",
    "landlock": "a reference writes files in its scratch folder only",
    "landlock-signals": "a reference cannot signal processes that it did not start",
    "seccomp": "a reference opens no sockets, traces and slows no other process, leaves no process group and nothing in the "
    "system's memory, changes no file's mode",
    "capabilities": "a reference started by root may read and write files of others, as far as the above allows, and no more",
}
"""Names of the restrictions, and the effect of each."""

SCRATCH = "KERNELMATE_SCRATCH"
"""Environment variable with the folder that a worker's references may write to."""

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER, _PR_CAPBSET_DROP = 4, 38, 36, 24

_CAPABILITIES, _CAPABILITY_FORM = 64, 0x20080522
_FILES_OF_OTHERS = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: root's references read data of other users, as in containers."""

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_VERSION_FLAG, _RULE_PATH, _O_PATH = 1, 1, 0x200000
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_WRITES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""Rights of ABI 1 that change files and folders; reading and executing are left alone."""
_REFER_SINCE, _TRUNCATE_SINCE, _NET_SINCE, _SCOPE_SINCE = 2, 3, 4, 6
_REFER = 1 << 13
_TCP, _SCOPED = 0b11, 0b11
"""Bits of Landlock: binding and connecting TCP sockets; access to abstract UNIX sockets, and signals."""

_ROUNDS = 20
"""Maximum number of passes over the descendants.

Each stops those it finds, so only processes in the middle of a fork add more.
"""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/shm", "/dev/nvidia*")  # noqa: S108
"""Devices that a reference may write to; Python's locks between processes need shared memory."""

_LOAD, _EQUAL, _SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT = 0, 4, 16, 24
_ALL_THREADS = 1
"""SECCOMP_FILTER_FLAG_TSYNC."""
_X32_BIT = 0x40000000
_SIGN_BIT = 0x80000000
_ANYWHERE = (424, 425, 434, 438, 452)
"""pidfd_send_signal, io_uring_setup, pidfd_open, pidfd_getfd, fchmodat2: refused on every architecture."""
_OWNERS = (8, 15, 0x8901, 0x8902)
"""F_SETOWN and F_SETOWN_EX of fcntl, FIOSETOWN and SIOCSPGRP of ioctl, which name a process that signals are sent to."""


class _Machine(NamedTuple):
    """System call numbers of one architecture.

    Attributes:
        arch: `AUDIT_ARCH` of the kernel.
        seccomp: the call itself.
        refused: in every case.
        kills: kill and tgkill, refused for protected processes.
        others: refused where the first argument is another process than the caller, which 0 denotes.
        priority: setpriority, refused for other processes and for groups.
        owning: fcntl and ioctl, refused with a command of `_OWNERS`.
    """

    arch: int
    seccomp: int
    refused: tuple[int, ...]
    kills: tuple[int, int]
    others: tuple[int, ...]
    priority: int
    owning: tuple[int, int]


# Refused: socket, ptrace, process_vm_readv, process_vm_writev, kcmp, setsid, setpgid, tkill, rt_sigqueueinfo,
# rt_tgsigqueueinfo; then what changes a file's mode, owner and attributes: chmod, fchmod, fchmodat, chown, fchown, lchown,
# fchownat, setxattr, lsetxattr, fsetxattr (aarch64 has no chmod, chown and lchown); then what stays in the system's memory:
# shmget, semget, msgget, mq_open, add_key, request_key, keyctl. Of others: prlimit64, sched_setparam, sched_setscheduler,
# sched_setaffinity, sched_setattr, migrate_pages, move_pages.
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        317,
        (
            41,
            101,
            310,
            311,
            312,
            112,
            109,
            200,
            129,
            297,
            90,
            91,
            268,
            92,
            93,
            94,
            260,
            188,
            189,
            190,
            29,
            64,
            68,
            240,
            248,
            249,
            250,
        ),
        (62, 234),
        (302, 142, 144, 203, 314, 256, 279),
        141,
        (72, 16),
    ),
    "aarch64": _Machine(
        0xC00000B7,
        277,
        (198, 117, 270, 271, 272, 157, 154, 130, 138, 240, 52, 53, 55, 54, 5, 6, 7, 194, 190, 186, 180, 217, 218, 219),
        (129, 131),
        (261, 118, 119, 122, 274, 238, 239),
        140,
        (25, 29),
    ),
}


def harden() -> tuple[str, ...]:
    """Sets the attributes of the worker's own process; returns the names of those in force.

    Call it after CUDA is opened, whose driver may start a setuid program that creates device files.
    """
    library = _library()
    calls = (("dumpable", _PR_SET_DUMPABLE, 0), ("no-new-privs", _PR_SET_NO_NEW_PRIVS, 1))
    held = tuple(name for name, option, value in calls if library and library.prctl(option, value, 0, 0, 0) == 0)
    return (*held, "subreaper") if adopt_orphans() else held


def adopt_orphans() -> bool:
    """Makes this process the parent of orphaned descendants; returns True if the system supports it."""
    library = _library()
    return library is not None and library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def confine(scratch: Path, protected: Sequence[int], opening: Callable[[], object] | None = None) -> tuple[str, ...]:
    """Restrict this process, which must be single-threaded, and all that it starts.

    Returns the names of those in force.

    Args:
        scratch: the folder that stays writable, besides some devices.
        protected: processes that must not be signalled.
        opening: opens CUDA, whose driver makes a socket and names its threads in /proc/self. It is called when files and rights
            are restricted already, before system calls are, and its threads are restricted, too. /proc/self then stays writable.
    """
    library = _library()
    if library is None or library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        if opening is not None:
            opening()
        return ()
    held = _landlock(library, (str(scratch), *(("/proc/self",) if opening is not None else ())))
    held += _without_capabilities(library)
    if opening is not None:
        opening()
    return held + _seccomp(library, protected)


def _without_capabilities(library: ctypes.CDLL) -> tuple[str, ...]:
    """Gives up all of root's rights but those to other users' files."""
    for number in range(
        _CAPABILITIES
    ):  # fails for capabilities that the kernel lacks or that this process may not drop
        if not _FILES_OF_OTHERS >> number & 1:
            library.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_FORM, 0)
    data = ctypes.create_string_buffer(24)
    if library.capget(header, data) != 0:
        return ()
    words = [word & _FILES_OF_OTHERS if place < 2 else 0 for place, word in enumerate(struct.unpack("=6I", data.raw))]
    return ("capabilities",) if library.capset(header, struct.pack("=6I", *words)) == 0 else ()


def own_group() -> dict[str, Any]:
    """Returns arguments for `Popen` that keep the terminal's Ctrl-C from the child."""
    if sys.platform == "win32":
        import subprocess

        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def ancestors() -> tuple[int, ...]:
    """Returns the process ids of this process's ancestors, nearest first, as far as the system shows them."""
    found: list[int] = []
    pid = os.getppid()
    while pid > 0 and pid not in found:
        found.append(pid)
        try:
            pid = int(
                Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[1]
            )
        except (OSError, ValueError, IndexError):
            break
    return tuple(found)


def _library() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "prctl") and hasattr(library, "syscall") else None


def _landlock(library: ctypes.CDLL, writable: Sequence[str]) -> tuple[str, ...]:
    version = library.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    if version < 1:
        return ()
    rights = _WRITES | _REFER * (version >= _REFER_SINCE) | _TRUNCATE * (version >= _TRUNCATE_SINCE)
    attributes = struct.pack("=Q", rights)
    if version >= _NET_SINCE:
        attributes += struct.pack("=Q", _TCP)
    if version >= _SCOPE_SINCE:
        attributes += struct.pack("=Q", _SCOPED)
    ruleset = library.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        return ()
    try:
        for path in (*writable, *(device for pattern in _DEVICES for device in glob.glob(pattern))):
            _allow_writes(library, ruleset, path, rights)
        if library.syscall(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)) != 0:
            return ()
    finally:
        os.close(ruleset)
    return ("landlock", "landlock-signals") if version >= _SCOPE_SINCE else ("landlock",)


def _allow_writes(library: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Adds a path to the ruleset; one that cannot be opened stays read-only."""
    try:
        place = os.open(path, _O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    wanted = rights if os.path.isdir(path) else rights & (_WRITE_FILE | _TRUNCATE)
    rule = struct.pack("=Qi", wanted, place)
    library.syscall(_LANDLOCK_ADD, ctypes.c_int(ruleset), ctypes.c_int(_RULE_PATH), rule, ctypes.c_uint32(0))
    os.close(place)


def _seccomp(library: ctypes.CDLL, protected: Sequence[int]) -> tuple[str, ...]:
    machine = _MACHINES.get(platform.machine())
    if machine is None or sys.maxsize < 1 << 32:
        return ()
    program = _program(machine, protected)
    held = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(held))
    done = library.syscall(ctypes.c_long(machine.seccomp), ctypes.c_uint(1), ctypes.c_uint(_ALL_THREADS), header)
    return ("seccomp",) if done == 0 else ()


def _program(machine: _Machine, protected: Sequence[int]) -> bytes:
    """Returns the BPF filter that refuses calls with EPERM."""

    def step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("=HBBI", code, yes, no, value)

    refuse, allow = step(_RETURN, _REFUSE), step(_RETURN, _ALLOW)
    code = [step(_LOAD, _ARCH_AT), step(_EQUAL, machine.arch, 1, 0), refuse, step(_LOAD, _NUMBER_AT)]
    code += [step(_SET, _X32_BIT, 0, 1), refuse]
    for number in (*machine.refused, *_ANYWHERE):
        code += [step(_EQUAL, number, 0, 1), refuse]
    for number in machine.others:
        code += [step(_EQUAL, number, 0, 4), step(_LOAD, _FIRST_ARGUMENT_AT), step(_EQUAL, 0, 1, 0), refuse, allow]
    code += [step(_EQUAL, machine.priority, 0, 6), step(_LOAD, _FIRST_ARGUMENT_AT), step(_EQUAL, 0, 0, 2)]
    code += [step(_LOAD, _SECOND_ARGUMENT_AT), step(_EQUAL, 0, 1, 0), refuse, allow]
    for number in machine.owning:
        code += [step(_EQUAL, number, 0, 2 + 2 * len(_OWNERS)), step(_LOAD, _SECOND_ARGUMENT_AT)]
        for command in _OWNERS:
            code += [step(_EQUAL, command, 0, 1), refuse]
        code += [allow]
    first, second = machine.kills
    code += [step(_EQUAL, first, 2, 0), step(_EQUAL, second, 1, 0), allow, step(_LOAD, _FIRST_ARGUMENT_AT)]
    # Groups, all processes, and the protected ones.
    code += [step(_SET, _SIGN_BIT, 0, 1), refuse]
    for pid in (0, *protected):
        code += [step(_EQUAL, pid, 0, 1), refuse]
    return b"".join([*code, allow])


def descendants(pid: int) -> list[int]:
    """Returns all processes that a process started, directly or indirectly, adopted orphans included.

    The result is empty without `/proc`.
    """
    children: defaultdict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*") if sys.platform.startswith("linux") else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            children[int(fields[1])].append(int(entry.name))
    found = list(children[pid])
    for one in found:
        found += children[one]
    return found


def kill_descendants(pid: int) -> None:
    """Kills all descendants of a running process, in any process group or session; the process itself continues."""
    seen: set[int] = set()
    for _ in range(_ROUNDS):
        new = set(descendants(pid)) - seen
        for one in new:
            with contextlib.suppress(OSError):
                os.kill(one, signal.SIGSTOP)
        seen |= new
        if not new:
            break
    for one in seen:
        with contextlib.suppress(OSError):
            os.kill(one, signal.SIGKILL)


def main() -> None:
    """Applies all restrictions to this process and prints the names of those in force as JSON."""
    print(json.dumps([*harden(), *confine(Path(tempfile.gettempdir()), ancestors())]))


if __name__ == "__main__":
    main()
