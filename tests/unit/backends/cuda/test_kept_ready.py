"""Recognition of processes on a GPU that KernelMate started and keeps ready."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelmate.backends.cuda.sensors import _kept_ready

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
ASK = "from kernelmate.backends.cuda.sensors import _kept_ready; import sys; print(_kept_ready(int(sys.argv[1])))"


def test_a_worker_beside_this_one_is_kept_ready_and_any_other_process_is_not() -> None:
    worker = subprocess.Popen([sys.executable, "-P", "-m", "kernelmate.worker.child"], stdin=subprocess.PIPE)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        for process, expected in ((worker, "True"), (other, "False")):
            until = time.monotonic() + 20
            while b"python" not in Path(f"/proc/{process.pid}/cmdline").read_bytes() and time.monotonic() < until:
                time.sleep(0.01)
            asked = subprocess.run(
                [sys.executable, "-c", ASK, str(process.pid)], capture_output=True, text=True, check=True
            )
            assert asked.stdout.strip() == expected
    finally:
        for process in (worker, other):
            process.kill()
            process.wait()
    assert _kept_ready(os.getpid())
    assert not _kept_ready(1)
