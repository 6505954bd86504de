"""The processes beside a worker that emulates: there from the start, and gone with it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmate.backends.emulator_pool import helper_count
from kernelmate.worker.client import Worker
from tests.processes import on_cores

pytestmark = pytest.mark.skipif(not helper_count(), reason="there is no other core, or no fork")


@pytest.fixture(autouse=True)
def _every_core() -> Iterator[None]:
    with on_cores():
        yield


def helpers_of(pid: int) -> list[int]:
    return [int(one) for path in Path(f"/proc/{pid}/task").glob("*/children") for one in path.read_text().split()]


@pytest.mark.parametrize("end", ["close", "kill"])
def test_helpers_end_with_their_worker(end: str, gone: Callable[[int], bool]) -> None:
    with Worker() as worker:
        worker.machine()
        pid = worker.pid
        assert pid is not None
        helpers = helpers_of(pid)
        assert len(helpers) == helper_count() + 1, "those that emulate, and the one that evaluates references"
        if end == "kill":
            os.kill(pid, signal.SIGKILL)
        else:
            worker.close()
        assert all(gone(helper) for helper in helpers)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_helpers_hold_nothing_of_the_protocol() -> None:
    with Worker() as worker:
        worker.machine()
        assert worker.pid is not None
        ours = {os.readlink(path) for path in Path(f"/proc/{worker.pid}/fd").iterdir()}
        streams = {os.readlink(f"/proc/{os.getpid()}/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_pipe(fd)}
        for helper in helpers_of(worker.pid):
            theirs = {os.readlink(path) for path in Path(f"/proc/{helper}/fd").iterdir()}
            shared = ours & theirs & streams
            assert shared == {os.readlink(f"/proc/{worker.pid}/fd/2")}


def _is_pipe(descriptor: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:")
    except OSError:
        return False
