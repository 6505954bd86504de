"""GpuLock on a GPU between processes: one timing at a time, nobody beside it, and a lock that dies with its holder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.backends.cuda.gpu_lock import GpuLock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="file locks are POSIX's")

GPU = "GPU-test"


class Other:
    """Another process that takes a turn when told to, and says when it has it."""

    def __init__(self, folder: Path, kind: str, patience_s: float = 30.0) -> None:
        code = f"""
            import sys
            from pathlib import Path
            from kernelmate.backends.cuda.gpu_lock import GpuLock
            with GpuLock({GPU!r}, Path({str(folder)!r})).{kind}({patience_s}) as got:
                print(got, flush=True)
                sys.stdin.readline()
            print("left", flush=True)
        """
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.says() == "left"
        self.process.wait()


@pytest.fixture
def others(tmp_path: Path) -> Iterator:
    started: list[Other] = []

    def start(kind: str, patience_s: float = 30.0) -> Other:
        started.append(Other(tmp_path, kind, patience_s))
        return started[-1]

    yield start
    for other in started:
        other.process.kill()
        other.process.wait()
        other.process.stdin.close()
        other.process.stdout.close()


def test_launches_share_the_gpu_and_a_timing_does_not(tmp_path: Path, others) -> None:
    mine = GpuLock(GPU, tmp_path)
    other = others("shared")
    assert other.says() == "True"
    with mine.shared(0.05) as got:
        assert got
    with mine.alone(0.05) as got:
        assert not got
    other.leave()
    with mine.alone(0.05) as got:
        assert got


def test_nobody_gets_in_beside_a_timing(tmp_path: Path, others) -> None:
    mine = GpuLock(GPU, tmp_path)
    other = others("alone")
    assert other.says() == "True"
    for turn in (mine.shared, mine.alone):
        with turn(0.05) as got:
            assert not got
    other.leave()
    with mine.shared(0.05) as got:
        assert got


def test_a_lock_whose_holder_is_killed_is_free_at_once(tmp_path: Path, others) -> None:
    other = others("alone")
    assert other.says() == "True"
    os.kill(other.process.pid, signal.SIGKILL)
    other.process.wait()
    with GpuLock(GPU, tmp_path).alone(0.0) as got:
        assert got


def test_one_that_waits_for_its_turn_gets_it_when_the_other_leaves(tmp_path: Path, others) -> None:
    mine = GpuLock(GPU, tmp_path)
    with mine.alone() as got:
        assert got
        other = others("alone")
        time.sleep(0.5)
        assert other.process.poll() is None
    assert other.says() == "True"
    other.leave()


def test_a_timing_that_waits_is_not_overtaken_by_ever_more_launches(tmp_path: Path, others) -> None:
    mine = GpuLock(GPU, tmp_path)
    holder = others("shared")
    assert holder.says() == "True"
    waiting = others("alone")
    late = GpuLock(GPU, tmp_path)
    # Until the other process has closed the gate, launches still come in.
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with late.shared(0.0) as got:
            if not got:
                break
        time.sleep(0.01)
    else:
        pytest.fail("the gate was never closed")
    holder.leave()
    assert waiting.says() == "True"
    waiting.leave()
    with mine.shared(1.0) as got:
        assert got


def test_who_waited_in_vain_does_not_wait_again_and_again(tmp_path: Path, others) -> None:
    mine = GpuLock(GPU, tmp_path)
    other = others("alone")
    assert other.says() == "True"
    with mine.shared(0.3) as got:
        assert not got
    began = time.monotonic()
    for _ in range(20):
        with mine.shared(30) as got:
            assert not got
        with mine.alone(30) as got:
            assert not got
    assert time.monotonic() - began < 30
    other.leave()
    with mine.shared(30) as got:
        assert got


def test_launches_within_a_timing_are_part_of_it(tmp_path: Path) -> None:
    mine, other = GpuLock(GPU, tmp_path), GpuLock(GPU, tmp_path)
    with mine.alone() as got:
        assert got
        with mine.shared(0.0) as inner:
            assert inner
        with other.shared(0.0) as got:
            assert not got
    with other.alone(0.0) as got:
        assert got


def test_gpus_have_locks_of_their_own(tmp_path: Path) -> None:
    one, other = GpuLock("GPU-1", tmp_path), GpuLock("GPU-2", tmp_path)
    with one.alone(0.0) as first, other.alone(0.0) as second:
        assert first
        assert second


def test_lock_files_are_open_to_every_user(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        GpuLock(GPU, tmp_path)
    finally:
        os.umask(before)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["kernelmate-GPU-test.gate", "kernelmate-GPU-test.room"]
    assert all(file.stat().st_mode & 0o777 == 0o666 for file in files)


def test_where_no_file_can_be_made_turns_are_not_taken_and_that_is_said(tmp_path: Path) -> None:
    turns = GpuLock(GPU, tmp_path / "absent")
    assert turns.unlocked is not None
    assert "absent" in turns.unlocked
    with turns.alone() as got:
        assert not got
    with turns.shared() as got:
        assert got
