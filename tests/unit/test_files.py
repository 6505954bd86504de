"""Atomic writes and locks, with processes that are killed and disks that are full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelmate.files import locked, write_atomically

HOLD = """
import sys, time
from pathlib import Path
from kernelmate.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_file_is_replaced_whole_in_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_atomically(path, "one\ud800", mode=0o644)
    assert path.read_text() == "one\\ud800"
    assert path.stat().st_mode & 0o777 == 0o644
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["file"]


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_killed_process_gives_its_lock_back(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        began = time.monotonic()
        with locked(lock, 0.1) as held:
            assert not held
        assert time.monotonic() - began >= 0.1
        holder.send_signal(signal.SIGKILL)
        with locked(lock, 30) as held:
            assert held
