"""Tests of Ctrl-C mean something wherever they are run: also where SIGINT is ignored, which programs inherit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)"
TESTS = Path(__file__).resolve().parents[1]


def test_a_process_that_is_started_here_can_be_interrupted() -> None:
    assert subprocess.run([sys.executable, "-c", CHILD], check=False).returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals are not inherited there")
def test_so_it_can_where_these_tests_are_run_with_the_signal_ignored() -> None:
    ignoring = f"import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv({sys.executable!r}, "
    here = f"{Path(__file__)}::{test_a_process_that_is_started_here_can_be_interrupted.__name__}"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(TESTS.parent / "pyproject.toml"),
        here,
    ]
    said = subprocess.run(
        [sys.executable, "-c", f"{ignoring}{command!r})"], capture_output=True, text=True, check=False, cwd=TESTS.parent
    )
    assert said.returncode == 0, said.stdout
    assert "1 passed" in said.stdout
