"""A runner that does not answer in time is killed; the launch that it was given counts as hung."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run
from kernelmate.backends.cuda.isolated import (
    LAUNCH_LEAST_S,
    LAUNCH_SHARE,
    IsolatedCuda,
    IsolatedModule,
    LaunchBegun,
    MeasureReply,
    Runner,
)
from kernelmate.records import LaunchShape


def silent(waits_s: float = 0.0) -> tuple[Runner, int]:
    """A runner whose launch begins after some seconds and never ends, and its process."""
    ours, theirs = Pipe()
    pid = os.fork()
    if not pid:
        ours.close()
        time.sleep(waits_s)
        theirs.send((LaunchBegun(), False))
        while True:
            time.sleep(60)
    theirs.close()
    return Runner(ours, pid, cast(Any, None)), pid


def test_a_runner_without_an_answer_in_time_is_killed_and_its_context_lost() -> None:
    runner, pid = silent()
    assert runner.ask("anything", 0.05) is None
    assert runner.poisoned
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_the_wait_for_other_processes_is_no_part_of_a_launch() -> None:
    runner, pid = silent(waits_s=0.5)
    began = time.monotonic()
    assert runner.ask("anything", 0.05) is None
    assert time.monotonic() - began >= 0.5
    os.waitpid(pid, 0)


def test_an_answer_after_the_beginning_is_given() -> None:
    ours, theirs = Pipe()
    theirs.send((LaunchBegun(), False))
    theirs.send(("answer", False))
    assert Runner(ours, os.getpid(), cast(Any, None)).ask("anything", 5.0) == "answer"


def test_a_launch_without_an_end_is_a_hang_that_keeps_the_arrays_as_they_were() -> None:
    runner, pid = silent()
    backend = IsolatedCuda(runner, cast(Any, SimpleNamespace(poisoned=False)))
    backend.launch_limit_s = 0.05
    given = np.arange(4, dtype=np.float32)
    run = Run(LaunchShape((1, 1, 1), (32, 1, 1), 0), (ArrayArgument("x", given, written=True),))
    result = backend.launch(cast(IsolatedModule, SimpleNamespace(number=1)), run)
    assert [finding.code for finding in result.findings] == ["hang"]
    assert "had not ended after 0.05 s" in result.findings[0].message
    np.testing.assert_array_equal(result.arrays["x"], given)
    assert [finding.code for finding in backend.launch(cast(Any, None), run).findings] == ["launch-failure"]
    os.waitpid(pid, 0)


@pytest.mark.parametrize(("timeout_s", "limit_s"), [(None, None), (1.0, LAUNCH_LEAST_S), (120.0, 120.0 / LAUNCH_SHARE)])
def test_a_launch_may_take_a_part_of_the_time_limit(timeout_s: float | None, limit_s: float | None) -> None:
    backend = IsolatedCuda(cast(Any, None), cast(Any, None))
    backend.limit(timeout_s)
    assert backend.launch_limit_s == limit_s


def test_other_work_is_called_while_a_version_is_timed() -> None:
    ours, theirs = Pipe()
    backend = IsolatedCuda(Runner(ours, os.getpid(), cast(Any, None)), cast(Any, SimpleNamespace(poisoned=False)))
    calls = 0

    def meanwhile() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            theirs.send((MeasureReply(), False))

    backend.meanwhile = meanwhile
    run = Run(LaunchShape((1, 1, 1), (32, 1, 1), 0), (ArrayArgument("x", np.zeros(4, np.float32), written=True),))
    module = cast(IsolatedModule, SimpleNamespace(number=1, target=None))
    seen = backend.measure(module, run, None, frozenset(), 0.1, full=True, quick=False)
    assert (seen, calls) == (MeasureReply(), 3)


def test_emulated_launches_that_were_begun_before_are_taken_by_their_version_once() -> None:
    compiled, other = ("one", "other")
    begun = SimpleNamespace(compiled=compiled)
    own = SimpleNamespace(companion=lambda code, target: SimpleNamespace(compiled=code))
    runner = SimpleNamespace(ask=lambda request: 7, drop=lambda number: None)
    backend = IsolatedCuda(cast(Any, runner), cast(Any, own))
    backend.foreseen = cast(Any, begun)
    modules = [backend.load(cast(Any, code), cast(Any, None)) for code in (other, compiled, compiled)]
    assert [module._companion is begun for module in modules] == [False, True, False]
