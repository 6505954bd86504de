"""All child processes end when the session's process ends, by any signal or exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmate.worker.process import Process

PARENT = """
import sys, threading
from kernelmate.records import Compiled, Contract, JudgeTask, Target, Unit, Version
from kernelmate.worker.client import Worker

script, code, how = sys.argv[1:]
target = Target("H100 SXM", "sm_90", (9, 0), 132, 1980, 1, 3350.0, 1, 67.0, 34.0, 134.0, "data sheet")
version = Version(Compiled("k", None, "k", "sm_90", "NVRTC", True, ()), Contract("k", ({},), ("1",), ("1",), ()), Unit("k.cu", ""))
task = lambda code: JudgeTask("emulator", target, version, None, None, (), 1, code)
worker = Worker((sys.executable, "-P", script))
worker.judge(task("pass"))
def begun(*_):
    print(worker.pid, flush=True)
if how == "in a task":
    worker.judge(task(code), begun)
elif how == "idle":
    begun()
    sys.stdin.read()
elif how == "ends without closing":
    begun()
elif how == "fails":
    begun()
    raise RuntimeError("a bug of the caller")
"""

BUSY = {
    "Python loop": "progress('kernel', 0, 1)\nwhile True: pass",
    "C call that keeps the interpreter's lock": (
        "progress('kernel', 0, 1)\nimport ctypes; ctypes.PyDLL(None).sleep(1000)"
    ),
}


@pytest.fixture
def parent(tmp_path: Path, command: tuple[str, ...]) -> Callable[[str, str], tuple[subprocess.Popen[str], int]]:
    """Start a process with a worker; it and the worker's process id, once the worker is where it should be."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)

    def start(how: str, code: str = "pass") -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen(
            [sys.executable, str(script), command[-1], code, how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    return start


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ties a process to its parent")
@pytest.mark.parametrize("code", BUSY.values(), ids=BUSY)
def test_a_parent_killed_outright_in_a_task_leaves_no_child(
    parent: Callable[..., tuple[subprocess.Popen[str], int]], gone: Callable[[int], bool], code: str
) -> None:
    process, worker = parent("in a task", code)
    process.kill()
    process.communicate()
    assert gone(worker)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_parent_that_is_ended_while_idle_leaves_no_child(
    parent: Callable[..., tuple[subprocess.Popen[str], int]], gone: Callable[[int], bool], number: int
) -> None:
    process, worker = parent("idle")
    process.send_signal(number)
    process.communicate()
    assert gone(worker)


@pytest.mark.parametrize("code", BUSY.values(), ids=BUSY)
def test_ctrl_c_stops_a_task_at_once_and_leaves_no_child(
    parent: Callable[..., tuple[subprocess.Popen[str], int]],
    gone: Callable[[int], bool],
    group_members: Callable[[int], list[int]],
    code: str,
) -> None:
    process, worker = parent("in a task", code)
    # To the whole foreground group, as a terminal does it.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode != 0
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert gone(worker)
    assert group_members(worker) == []


@pytest.mark.parametrize("how", ["ends without closing", "fails"])
def test_a_parent_that_never_closes_its_worker_leaves_no_child(
    parent: Callable[..., tuple[subprocess.Popen[str], int]],
    gone: Callable[[int], bool],
    group_members: Callable[[int], list[int]],
    how: str,
) -> None:
    process, worker = parent(how)
    _, errors = process.communicate()
    assert process.returncode == (1 if how == "fails" else 0), errors
    assert gone(worker)
    assert group_members(worker) == []


def test_a_fork_of_the_parent_that_ends_leaves_the_worker_alone(tmp_path: Path, command: tuple[str, ...]) -> None:
    script = tmp_path / "forking.py"
    script.write_text(
        PARENT.split("def begun")[0]
        + "import os\npid = worker.pid\nif os.fork() == 0:\n    worker.close()\n    sys.exit(0)\nos.wait()\n"
        + "worker.judge(task('pass'))\nprint(worker.pid == pid)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), command[-1], "", ""], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "True\n"


def test_scratch_folders_of_killed_sessions_are_removed_and_those_of_living_ones_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, fresh = tmp_path / "kernelmate-scratch-left", tmp_path / "kernelmate-scratch-fresh"
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    first = Process(command, dict(os.environ), 1000)
    (own,) = tmp_path.iterdir()
    for folder in (left, fresh):
        folder.mkdir()
        (folder / "file").touch()
    for folder in (left, own):
        os.utime(folder, (1, 1))
    second = Process(command, dict(os.environ), 1000)
    try:
        assert own.exists()
        assert fresh.exists()
        assert not left.exists()
    finally:
        first.kill()
        second.kill()
    assert [path.name for path in tmp_path.iterdir()] == [fresh.name]
