"""Output that the driver prints for a kernel through the C library is captured and limited in length."""

from __future__ import annotations

import ctypes
import os
import sys

import pytest

from kernelmate.backends.base import MOST_PRINTED
from kernelmate.backends.cuda.printing import captured_output

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no descriptors 1 and 2 to redirect so")


def test_what_the_c_library_prints_is_caught_whole(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_output(True) as printed:
        ctypes.CDLL(None).printf(b"thread %d\n", 7)
        os.write(2, b"and an error\n")
    assert printed.text.splitlines() in (["thread 7", "and an error"], ["and an error", "thread 7"])
    assert not printed.flooded
    os.write(1, b"after")
    assert capfd.readouterr().out == "after"


def test_a_flood_is_drained_and_its_beginning_kept() -> None:
    with captured_output(True) as printed:
        for _ in range(40):
            os.write(1, b"x" * (1 << 20))
    assert printed.size == 40 << 20
    assert printed.flooded
    assert printed.text == "x" * MOST_PRINTED


def test_a_failed_assert_is_read_with_its_line() -> None:
    line = "k.cu:12: void twice(const float *, int): block: [3,0,0], thread: [65,0,0] Assertion `i < n` failed.\n"
    with captured_output(True) as printed:
        os.write(2, line.encode() * 3)
    assert printed.failed_assert == ("i < n", 12)


def test_what_is_raised_within_comes_out_and_leaves_the_streams_as_they_were(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), captured_output(True):
        raise KeyError
    os.write(1, b"as before")
    assert capfd.readouterr().out == "as before"


def test_nothing_is_caught_unasked(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_output(False) as printed:
        os.write(1, b"through")
    assert capfd.readouterr().out == "through"
    assert printed.text == ""
