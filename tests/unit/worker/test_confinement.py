"""Restrictions of processes: each refuses what it documents, and all processes that a worker started end with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmate.confinement import MEASURES
from kernelmate.records import Judgement, JudgeTask
from kernelmate.worker.client import Worker

MakeTask = Callable[..., JudgeTask]

ESCAPE = """
import os, time
read, write = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        os.write(write, str(os.getpid()).encode())
        os.closerange(0, 64)
        time.sleep(1000)
    os._exit(0)
printed = os.read(read, 20).decode()
"""


def in_force() -> list[str]:
    import json

    command = [sys.executable, "-P", "-m", "kernelmate.confinement"]
    names: list[str] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return names


needs_landlock = pytest.mark.skipif("landlock" not in in_force(), reason="this kernel has no landlock")
needs_signals = pytest.mark.skipif("landlock-signals" not in in_force(), reason="this kernel's landlock has no scopes")
needs_seccomp = pytest.mark.skipif("seccomp" not in in_force(), reason="this system has no seccomp filters")


def confined(code: str, scratch: Path, *, only: str = "") -> str:
    """Returns the output of code in a confined process; `only` leaves one of the two mechanisms on."""
    off = {"landlock": "_seccomp", "seccomp": "_landlock"}.get(only)
    script = (
        "import ctypes, os, signal, socket, sys\nfrom pathlib import Path\nfrom kernelmate import confinement\n"
        + (f"confinement.{off} = lambda *_: ()\n" if off else "")
        + f"confinement.confine(Path({str(scratch)!r}), confinement.ancestors())\n"
        + "def tried(call):\n    try:\n        call()\n    except OSError as error:\n        return type(error).__name__\n    return 'done'\n"
        + code
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_restriction_in_force_is_known_by_name() -> None:
    assert set(in_force()) <= set(MEASURES)


def test_a_worker_cannot_be_traced_and_gains_no_rights(worker: Worker, task: MakeTask) -> None:
    code = (
        "import ctypes; dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)\n"
        "status = open('/proc/self/status').read(); printed = dumpable, 'NoNewPrivs:\\t1' in status"
    )
    answer = worker.judge(task(code))
    assert isinstance(answer, Judgement)
    assert answer.printed == "(0, True)"


@pytest.mark.parametrize("end", ["close", "death"])
def test_a_process_that_left_the_workers_session_ends_with_the_worker(
    worker: Worker, task: MakeTask, gone: Callable[[int], bool], end: str
) -> None:
    answer = worker.judge(task(ESCAPE))
    assert isinstance(answer, Judgement)
    escaped = int(answer.printed)
    assert Path(f"/proc/{escaped}").exists()
    if end == "close":
        worker.close()
    else:
        worker.judge(task("import time; time.sleep(1000)"), timeout_s=0.5)
    assert gone(escaped)


@needs_landlock
def test_files_are_written_in_the_scratch_folder_only(tmp_path: Path) -> None:
    scratch, outside = tmp_path / "scratch", tmp_path / "outside"
    scratch.mkdir()
    outside.write_text("as it was")
    code = f"""
print(tried(lambda: open({str(scratch / "made")!r}, "w").write("x")))
print(tried(lambda: open({str(outside)!r}, "w")))
print(tried(lambda: os.truncate({str(outside)!r}, 0)))
print(tried(lambda: os.unlink({str(outside)!r})))
print(tried(lambda: os.mkdir({str(tmp_path / "folder")!r})))
print(tried(lambda: os.rename({str(outside)!r}, {str(scratch / "moved")!r})))
print(open({str(outside)!r}).read(), tried(lambda: open("/dev/null", "w")))
"""
    said = confined(code, scratch, only="landlock").splitlines()
    assert said[0] == "done"
    assert all(one in ("PermissionError", "OSError") for one in said[1:6])
    assert said[6] == "as it was done"
    assert outside.read_text() == "as it was"


@needs_seccomp
def test_no_socket_is_opened(tmp_path: Path) -> None:
    code = (
        "print(*(tried(lambda: socket.socket(family)) for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)))"
    )
    assert confined(code, tmp_path, only="seccomp") == " ".join(["PermissionError"] * 3)


@needs_landlock
@needs_seccomp
def test_threads_of_a_driver_that_is_opened_in_between_are_restricted_too(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    script = f"""
import socket, threading
from pathlib import Path
from kernelmate import confinement
said, ready, confined = [], threading.Event(), threading.Event()
def tried(call):
    try:
        call()
    except OSError as error:
        return type(error).__name__
    return "done"
def driver():
    said.append(tried(lambda: open("/proc/self/task/" + str(threading.get_native_id()) + "/comm", "w").write("cuda")))
    said.append(tried(socket.socket))
    ready.set()
    confined.wait()
    said.append(tried(socket.socket))
    said.append(tried(lambda: open({str(tmp_path / "outside")!r}, "w")))
def opened():
    threading.Thread(target=driver).start()
    ready.wait()
confinement.confine(Path({str(tmp_path / "scratch")!r}), confinement.ancestors(), opened)
confined.set()
[one.join() for one in threading.enumerate() if one is not threading.current_thread()]
print(*said, tried(socket.socket))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done", "done", "PermissionError", "PermissionError", "PermissionError"]


@pytest.mark.parametrize(
    "only", [pytest.param("landlock", marks=needs_signals), pytest.param("seccomp", marks=needs_seccomp)]
)
def test_a_parent_is_neither_stopped_nor_traced(tmp_path: Path, only: str) -> None:
    code = (
        "print(tried(lambda: os.kill(os.getppid(), signal.SIGCONT)))\n"
        "print(ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0))\n"
    )
    assert confined(code, tmp_path, only=only).split() == ["PermissionError", "-1"]


@needs_seccomp
def test_no_other_process_is_slowed_or_moved(tmp_path: Path) -> None:
    code = """
parent = os.getppid()
print(
    tried(lambda: os.setpriority(os.PRIO_PROCESS, parent, 19)), tried(lambda: os.setpriority(os.PRIO_PGRP, 0, 19)),
    tried(lambda: os.setpriority(os.PRIO_USER, 0, 19)), tried(lambda: os.sched_setaffinity(parent, {0})),
    tried(lambda: os.sched_setscheduler(parent, os.SCHED_IDLE, os.sched_param(0))),
    tried(lambda: os.nice(1)), tried(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))),
)
"""
    assert confined(code, tmp_path).split() == ["PermissionError"] * 5 + ["done"] * 2


@needs_seccomp
@pytest.mark.parametrize("only", ["", "seccomp"])
def test_no_descriptor_signals_a_parent(tmp_path: Path, only: str) -> None:
    """A pipe with an owner signals it when there is something to read."""
    code = """
import fcntl
read, write = os.pipe()
pair = socket.socketpair()
print(
    tried(lambda: fcntl.fcntl(read, fcntl.F_SETOWN, os.getppid())),
    tried(lambda: fcntl.fcntl(read, 15, bytes(8))), tried(lambda: fcntl.ioctl(pair[0], 0x8901, bytes(4))),
    tried(lambda: fcntl.fcntl(read, fcntl.F_SETFL, os.O_NONBLOCK)),
)
"""
    assert confined(code, tmp_path, only=only).split() == ["PermissionError"] * 3 + ["done"]


@needs_seccomp
def test_nothing_stays_in_the_systems_memory(tmp_path: Path) -> None:
    code = """
library = ctypes.CDLL(None, use_errno=True)
def refused(call, *arguments):
    return getattr(library, call)(*arguments) == -1 and ctypes.get_errno() == 1
print(
    refused("shmget", 0, 4096, 0o600), refused("semget", 0, 1, 0o600), refused("msgget", 0, 0o600),
    refused("mq_open", b"/kernelmate-test", 0o102, 0o600, None),
)
"""
    assert confined(code, tmp_path) == "True True True True"


@pytest.mark.skipif("capabilities" not in in_force(), reason="this system has no capabilities")
def test_root_keeps_its_rights_to_files_alone(tmp_path: Path) -> None:
    """CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, also in programs that it starts."""
    code = """
import subprocess
print(open("/proc/self/status").read(), subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout)
"""
    words = confined(code, tmp_path).split()
    held = [int(words[place + 1], 16) for place, word in enumerate(words) if word in ("CapEff:", "CapPrm:")]
    assert len(held) == 4
    assert all(one & ~0b110 == 0 for one in held)


@needs_landlock
def test_the_environment_of_a_parent_is_not_read(tmp_path: Path) -> None:
    """It may hold keys; since Linux 6.13 root needs CAP_PERFMON for it, and nobody landlock's leave."""
    code = """
print({tried(lambda: open(f"/proc/{pid}/{name}", "rb").read()) for pid in confinement.ancestors() for name in ("environ", "mem")})
"""
    assert confined(code, tmp_path) == "{'PermissionError'}"


@needs_seccomp
def test_no_process_leaves_its_group(tmp_path: Path) -> None:
    code = "print(tried(os.setsid), tried(os.setpgrp), tried(lambda: os.kill(0, 0)), tried(lambda: os.kill(-1, 0)))"
    assert confined(code, tmp_path, only="seccomp") == " ".join(["PermissionError"] * 4)


def test_what_an_honest_reference_does_still_works(tmp_path: Path) -> None:
    code = """
import multiprocessing, subprocess, tempfile
import numpy as np
os.environ["TMPDIR"] = sys.argv[0] and str(SCRATCH)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(abs, [-1, 2]))
print(subprocess.run(["echo", "said"], capture_output=True, text=True, check=True).stdout.strip())
process = subprocess.Popen(["sleep", "100"])
process.terminate()
print(process.wait())
print(np.linalg.norm(np.ones((64, 64)) @ np.ones((64, 64))), os.cpu_count() is not None)
with tempfile.TemporaryDirectory() as folder:
    np.save(Path(folder, "a.npy"), np.ones(3))
    print(np.load(Path(folder, "a.npy")).sum())
""".replace("SCRATCH", repr(str(tmp_path)))
    assert confined(code, tmp_path).splitlines() == ["[1, 2]", "said", "-15", "4096.0 True", "3.0"]


def test_processes_that_fork_while_they_are_killed_leave_nothing(tmp_path: Path) -> None:
    script = """
import os, time
from kernelmate.confinement import adopt_orphans, descendants, kill_descendants
adopt_orphans()
if not os.fork():
    os.setsid()
    for _ in range(20):
        if not os.fork():
            time.sleep(0.01)
            os.fork()
            time.sleep(1000)
    time.sleep(1000)
time.sleep(0.05)
before = len(descendants(os.getpid()))
kill_descendants(os.getpid())
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
print(before > 1, descendants(os.getpid()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "True []"
    assert os.listdir(tmp_path) == []
