"""Launches that other processes emulate ahead: the same answers, and none lost with a process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument
from kernelmate.backends.cuda.emulated_checks import LEAST_PROCESSES, EarlierLaunches, EmulatedChecks
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.jit import store
from kernelmate.backends.emulator_pool import MOST, EmulatorLost, EmulatorPool, TooLarge, process_count, warm_up
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Compiled, CompileOptions, LaunchShape
from kernelmate.source import find_kernels, text_unit

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are forked on Linux only")

HEAD = "__global__ void k(const float* x, float* y, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
TWICE = HEAD + "  if (i < n) y[i] = 2 * x[i];\n}\n"
PAST_END = HEAD + "  y[i] = 2 * x[i];\n}\n"
SHAPE = LaunchShape((4, 1, 1), (64, 1, 1))
TARGET = find_target(None)


def compiled(text: str) -> Compiled:
    found = compile_kernel(
        find_kernels(text_unit(text, "k.cu"))[0], (), instance=None, target=TARGET, options=CompileOptions()
    )
    assert found.ok, found.diagnostics
    return found


def launch(n: int = 200, *, key: object = None, count: bool = False, seed: int = 0, step_limit: int = 1_000_000) -> Run:
    x = np.arange(n, dtype=np.float32)
    arguments = (
        ArrayArgument("x", x, written=False), ArrayArgument("y", np.zeros_like(x), output=True),
        ScalarArgument("n", np.int32(n)),
    )  # fmt: skip
    return Run(SHAPE, arguments, schedule_seed=seed, count=count, key=key, step_limit=step_limit)


class Watched:
    """The emulator in this process, counting what it is asked for."""

    def __init__(self, code: Compiled) -> None:
        self._module = EmulatorBackend().load(code, TARGET)
        self.made = 0

    def run(self, run: Run) -> RunResult:
        self.made += 1
        return self._module.run(run)


@pytest.fixture
def emulators() -> Iterator[EmulatorPool]:
    processes = EmulatorPool(2)
    yield processes
    processes.close()


def test_an_answer_is_what_this_process_would_have_found_less_the_arrays(emulators: EmulatorPool) -> None:
    code = compiled(TWICE)
    run = launch(count=True)
    theirs = emulators.submit(code, TARGET, run).result()
    ours = EmulatorBackend().load(code, TARGET).run(run)
    assert theirs is not None
    assert theirs.arrays == {}
    assert (theirs.counters, theirs.findings, theirs.block_counts, theirs.checked) == (
        ours.counters, ours.findings, ours.block_counts, ours.checked,
    )  # fmt: skip


def test_what_goes_wrong_comes_with_its_line_and_its_arrays(emulators: EmulatorPool) -> None:
    seen = emulators.submit(compiled(PAST_END), TARGET, launch()).result()
    assert seen is not None
    assert {(finding.code, finding.line) for finding in seen.findings} >= {("out-of-bounds-write", 3)}
    assert set(seen.arrays) == {"x", "y"}


def test_a_launch_that_is_too_large_says_so(emulators: EmulatorPool) -> None:
    run = launch()
    seen = emulators.submit(compiled(TWICE), TARGET, Run(run.shape, run.arguments, total_limit=10)).result()
    assert isinstance(seen, TooLarge)
    assert seen.limit == 10
    assert str(seen.error()) == seen.message


def test_launches_that_were_foreseen_are_not_made_here(emulators: EmulatorPool) -> None:
    code = compiled(TWICE)
    here = Watched(code)
    companion = EmulatedChecks(here, code, TARGET, emulators)
    runs = [launch(n, key=n, seed=n) for n in range(100, 120)]
    companion.foresee(runs)
    seen = [companion.seen(run) for run in runs]
    assert here.made == 0
    assert all(one is not None and one.findings == () and one.checked for one in seen)
    companion.seen(launch(300, key=300))
    assert here.made == 1


def test_launches_are_made_here_once_the_processes_are_gone(emulators: EmulatorPool) -> None:
    code = compiled(TWICE)
    here = Watched(code)
    companion = EmulatedChecks(here, code, TARGET, emulators)
    for pid in emulators.pids:
        os.kill(pid, signal.SIGKILL)
    runs = [launch(n, key=n) for n in range(100, 110)]
    companion.foresee(runs)
    assert all(companion.seen(run) is not None for run in runs)
    assert here.made == len(runs)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        after = emulators.submit(code, TARGET, launch())
        if isinstance(after.exception(), EmulatorLost):
            break
    with pytest.raises(EmulatorLost):
        after.result()


def test_a_tighter_limit_on_steps_is_kept(emulators: EmulatorPool) -> None:
    loop = "  volatile float v = 0;\n  for (int k = 0; k < 50 * n; ++k) v += x[k % n];\n"
    code = compiled(HEAD + loop + "  if (i < n) y[i] = v;\n}\n")
    here = Watched(code)
    companion = EmulatedChecks(here, code, TARGET, emulators)
    companion.foresee([launch(key="a"), launch(key="b")])
    within, beyond = (
        companion.seen(launch(key="a", step_limit=900_000)),
        companion.seen(launch(key="b", step_limit=20_000)),
    )
    assert within is not None
    assert within.findings == ()
    assert beyond is not None
    assert {finding.code for finding in beyond.findings} == {"hang"}
    assert here.made == 1


def test_the_next_version_is_told_what_native_code_was_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMATE_EMULATOR_JIT", "auto")
    processes, code, worth = EmulatorPool(1, hasty=True), compiled(TWICE), EarlierLaunches()
    for _ in range(2):
        companion = EmulatedChecks(Watched(code), code, TARGET, processes, worth)
        companion.foresee([launch(key="a")])
        assert companion.seen(launch(key="a")) is not None
        # NumPy had made it before native code would have been there.
        assert worth.known(code.lowered_name, launch()) is False
    processes.close()


def test_code_with_variables_of_its_own_runs_in_one_place(emulators: EmulatorPool) -> None:
    text = "__device__ int calls;\n" + HEAD + "  if (i == 0) calls += 1;\n  if (i < n) y[i] = calls;\n}\n"
    code = compiled(text)
    here = Watched(code)
    companion = EmulatedChecks(here, code, TARGET, emulators)
    runs = [launch(key=0), launch(key=1)]
    companion.foresee(runs)
    for run in runs:
        companion.seen(run)
    assert here.made == 2


def test_what_was_foreseen_in_vain_is_given_up(emulators: EmulatorPool) -> None:
    code = compiled(TWICE)
    here = Watched(code)
    companion = EmulatedChecks(here, code, TARGET, emulators)
    companion.foresee([launch(n, key=n) for n in range(100, 140)])
    companion.foresee(())
    assert companion.seen(launch(139, key=139)) is not None
    assert here.made == 1


def test_launches_that_are_foreseen_twice_are_begun_once(
    emulators: EmulatorPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, submitted = compiled(TWICE), 0
    companion = EmulatedChecks(Watched(code), code, TARGET, emulators)
    submit = emulators.submit

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal submitted
        submitted += 1
        return submit(*arguments, **options)

    monkeypatch.setattr(emulators, "submit", counted)
    runs = [launch(n, key=n) for n in range(100, 104)]
    companion.foresee(runs[:3])
    companion.foresee(runs[1:])
    assert submitted == len(runs)
    wider = replace(runs[1], shape=LaunchShape((2, 1, 1), (128, 1, 1)))
    companion.foresee([wider])
    assert submitted == len(runs) + 1
    assert companion.seen(wider) is not None


def test_processes_end_when_they_are_closed() -> None:
    processes = EmulatorPool(2)
    pids = processes.pids
    processes.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_half_of_the_cores_emulate_and_one_less() -> None:
    assert process_count() == max(0, min(MOST, len(os.sched_getaffinity(0)) // 2 - 1))


def test_processes_that_are_forked_after_the_warm_up_count_the_same(emulators: EmulatorPool) -> None:
    warm_up()
    assert "llvmlite.binding" in sys.modules
    code, warm = compiled(TWICE), EmulatorPool(1)
    try:
        one, other = (where.submit(code, TARGET, launch(count=True)).result() for where in (warm, emulators))
    finally:
        warm.close()
    assert one is not None
    assert other is not None
    assert (one.counters, one.findings, one.block_counts) == (other.counters, other.findings, other.block_counts)


LONG = (
    HEAD
    + "  float v = 1.0f;\n#pragma unroll\n  for (int j = 1; j < 1200; j++) v = fmaf(v, x[i % n], float(j));\n  if (i < n) y[i] = v;\n}\n"
)


@pytest.mark.parametrize(("text", "ahead"), [(TWICE, False), (LONG, True)])
def test_long_code_is_compiled_ahead_for_launches_that_are_each_too_short(
    text: str, ahead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(tmp_path))
    processes, code = EmulatorPool(LEAST_PROCESSES, hasty=True), compiled(text)
    try:
        companion = EmulatedChecks(EmulatorBackend().load(code, TARGET), code, TARGET, processes)
        runs = [launch(n, key=n) for n in (1, 2, 3)]
        companion.foresee(runs)
        companion.foresee(runs)  # The same code is compiled once.
        seen = [companion.seen(run) for run in runs]
        while ahead and not any(store.folder().glob("*.bin")):
            time.sleep(0.05)
    finally:
        processes.close()
    assert all(one is not None and not one.findings for one in seen)
    assert len(list(store.folder().glob("*.bin"))) == int(ahead)


def test_counters_of_long_code_are_taken_beside_its_checks() -> None:
    processes, code = EmulatorPool(LEAST_PROCESSES, hasty=True), compiled(LONG)
    here = Watched(code)
    try:
        companion = EmulatedChecks(here, code, TARGET, processes)
        runs = [launch(n, key=n, count=n < 3) for n in (1, 2, 3)]
        companion.foresee(runs)
        first, _, last = (companion.seen(run) for run in runs)
        assert first is not None
        assert last is not None
        assert (first.checked, first.counters, last.counting) == (True, None, None)
        assert first.counting is not None
        counted = first.counting()
    finally:
        processes.close()
    whole = here.run(runs[0])
    assert counted is not None
    assert here.made == 1
    assert (counted.counters, counted.block_counts, counted.footprint_bytes, counted.l1) == (
        whole.counters, whole.block_counts, whole.footprint_bytes, whole.l1,
    )  # fmt: skip


def test_counters_beside_checks_are_taken_here_once_the_processes_are_gone() -> None:
    processes, code = EmulatorPool(LEAST_PROCESSES, hasty=True), compiled(LONG)
    here = Watched(code)
    companion = EmulatedChecks(here, code, TARGET, processes)
    for pid in processes.pids:
        os.kill(pid, signal.SIGSTOP)
    run = launch(1, key=1, count=True)
    companion.foresee([run, launch(2, key=2)])
    processes.close()
    seen = companion.seen(run)
    assert seen is not None
    counted = seen if seen.counting is None else seen.counting()
    assert counted is not None
    assert counted.counters == EmulatorBackend().load(code, TARGET).run(run).counters


def test_a_launch_that_was_too_large_to_count_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelmate.backends.cuda.emulated_checks.COUNTED_LARGE_INSTRUCTIONS", 10)
    monkeypatch.setattr("kernelmate.backends.cuda.emulated_checks.COUNTED_WITHIN_S", 60.0)
    processes, code, earlier = EmulatorPool(1), compiled(TWICE), EarlierLaunches()
    try:
        companions = [EmulatedChecks(Watched(code), code, TARGET, processes, earlier) for _ in range(2)]
        counting = companions[0].counting(launch())
        assert counting is not None
        assert counting() is None
        assert companions[1].counting(launch()) is None
        assert companions[1].counting(launch(199)) is not None
    finally:
        processes.close()
