"""A process keeps freed memory for its next arrays, and returns it when it is told to."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
import numpy as np
from pathlib import Path
from kernelmate.backends.processes import keep_freed_memory, return_freed_memory

def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4 >> 10

keep_freed_memory()
before = held()
array = np.ones(32 << 20)
del array
kept = held() - before
return_freed_memory()
print(kept, held() - before)
keep_freed_memory(kept=False)
array = np.ones(32 << 20)
del array
print(held() - before)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(__import__("ctypes").CDLL(None), "mallopt"),
    reason="the C library is not glibc",
)
def test_freed_memory_is_kept_until_it_is_returned():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    first, last = done.stdout.splitlines()
    kept, returned = map(int, first.split())
    assert kept > 200  # MiB of 256
    assert returned < 50
    assert int(last) < 50
