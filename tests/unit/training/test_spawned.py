"""Processes at the other end of a pipe: one thread each, deaf to Ctrl-C, gone when they are told to be."""

from __future__ import annotations

import os
import signal
import sys
import time
from multiprocessing.connection import Connection

import pytest

from kernelmate_training.spawned import QUIET, Spawned


def tell(pipe: Connection, more: str) -> None:
    """Says what surrounds it, then what it is told, and sleeps over a None."""
    pipe.send(({name: os.environ.get(name) for name in QUIET}, more))
    while (word := pipe.recv()) is not None:
        pipe.send(word)
    time.sleep(600)


def test_it_is_told_to_take_one_thread_and_we_are_as_we_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    spawned = Spawned(tell, "more")
    assert (os.environ["OMP_NUM_THREADS"], os.environ.get("MKL_NUM_THREADS")) == ("7", None)
    try:
        assert spawned.pipe.recv() == (QUIET, "more")
    finally:
        spawned.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are Unix's")
def test_ctrl_c_does_not_end_it_and_killing_does_whatever_it_is_busy_with() -> None:
    spawned = Spawned(tell, "")
    try:
        spawned.pipe.recv()
        assert spawned.process.pid is not None
        os.kill(spawned.process.pid, signal.SIGINT)
        spawned.pipe.send("still there")
        assert spawned.pipe.recv() == "still there"
        spawned.pipe.send(None)
    finally:
        spawned.kill()
    assert spawned.process.exitcode == -signal.SIGKILL
