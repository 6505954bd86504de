"""The emulator with other processes' help: what is found is what one process finds, whoever made which launch."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernelmate.backends.base import (
    ArrayArgument,
    Backend,
    EmulationTooLarge,
    Run,
    RunResult,
    ScalarArgument,
    SupportsPrefetch,
)
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.backend import EmulatedModule
from kernelmate.backends.emulator_pool import MOST_HELPERS, EmulatorPool, helper_count
from kernelmate.backends.parallel_emulator import MOST_EARLY, ParallelEmulator, ParallelModule
from kernelmate.checks.judge import judge
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Compiled, CompileOptions, Judgement, JudgeTask, LaunchShape
from kernelmate.session.preparing import KernelPreparer
from kernelmate.source import contract_for, find_kernels, load_kernels, parse_contract, text_unit

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are forked on Linux only")

EXPLOITS = Path(__file__).resolve().parents[2] / "exploits"
CHOSEN = (
    "wrong/divergent_barrier", "wrong/uninitialised_shared", "wrong/one_read_too_far", "wrong/trap_at_odd_sizes",
    "wrong/misaligned_rows", "right/smaller_block",
)  # fmt: skip
HEAD = "__global__ void k(const float* x, float* y, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
TWICE = HEAD + "  if (i < n) y[i] = 2 * x[i];\n}\n"
COUNTING = "__device__ int calls;\n" + HEAD + "  if (i == 0) calls += 1;\n  if (i < n) y[i] = calls;\n}\n"
LOOPING = (
    HEAD + "  volatile float v = 0;\n  for (int k = 0; k < 50 * n; ++k) v += x[k % n];\n  if (i < n) y[i] = v;\n}\n"
)
SHAPE = LaunchShape((4, 1, 1), (64, 1, 1))
TARGET = find_target(None)


def compiled(text: str) -> Compiled:
    found = compile_kernel(
        find_kernels(text_unit(text, "k.cu"))[0], (), instance=None, target=TARGET, options=CompileOptions()
    )
    assert found.ok, found.diagnostics
    return found


def launch(n: int, *, step_limit: int = 1_000_000, total_limit: int = 10**9) -> Run:
    x = np.arange(n, dtype=np.float32)
    arguments = (
        ArrayArgument("x", x, written=False), ArrayArgument("y", np.zeros_like(x), output=True),
        ScalarArgument("n", np.int32(n)),
    )  # fmt: skip
    return Run(SHAPE, arguments, key=n, step_limit=step_limit, total_limit=total_limit)


@pytest.fixture
def emulators() -> Iterator[EmulatorPool]:
    processes = EmulatorPool(1)
    yield processes
    processes.close()


@pytest.fixture
def made_here(monkeypatch: pytest.MonkeyPatch, emulators: EmulatorPool) -> list[int]:
    """Keys of the launches that this process makes: the others were forked before."""
    keys: list[int] = []
    run = EmulatedModule.run

    def noted(self: EmulatedModule, wanted: Run) -> RunResult:
        keys.append(wanted.key)  # type: ignore[arg-type]
        return run(self, wanted)

    monkeypatch.setattr(EmulatedModule, "run", noted)
    return keys


def helped(text: str, emulators: EmulatorPool) -> ParallelModule:
    module = ParallelEmulator(emulators).load(compiled(text), TARGET)
    assert isinstance(module, ParallelModule)
    return module


def judgement(name: str, backend: Backend) -> Judgement:
    path, baselines = EXPLOITS / f"{name}.cu", EXPLOITS / "baselines"
    named = re.search(r"^// baseline: (\S+)$", path.read_text(), flags=re.MULTILINE)
    assert named is not None
    baseline, candidate = load_kernels(baselines / named[1])[0], load_kernels(path)[0]
    contract, preparer = contract_for(baseline), KernelPreparer(TARGET, CompileOptions(), 60.0)
    first = preparer.prepare(baseline, contract, None).version
    second = preparer.prepare_candidate(candidate, parse_contract(candidate, contract) or contract, None).version
    task = JudgeTask("emulator", TARGET, second, first, None, (), 5, str(baselines), timing_budget_s=0)
    return judge(task, backend, lambda *_: None, lambda *_: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_judgement_is_the_same_with_help(name: str, emulators: EmulatorPool) -> None:
    assert repr(judgement(name, ParallelEmulator(emulators))) == repr(judgement(name, EmulatorBackend()))


def test_launches_that_were_foreseen_give_what_they_give_here(emulators: EmulatorPool, made_here: list[int]) -> None:
    module = helped(TWICE, emulators)
    runs = [launch(n) for n in range(100, 140)]
    module.foresee(runs)
    results = [module.run(run) for run in runs]
    assert len(made_here) < len(runs)
    for run, result in zip(runs, results, strict=True):
        assert result.arrays["y"].tobytes() == (2 * np.arange(run.key, dtype=np.float32)).tobytes()
        assert result.arrays["y"].flags.writeable
        assert result.findings == ()


def test_a_launch_that_nobody_foresaw_is_made_here(emulators: EmulatorPool, made_here: list[int]) -> None:
    module = helped(TWICE, emulators)
    module.foresee([launch(100), launch(101)])
    assert module.run(launch(90)).arrays["y"][3] == 6
    assert 90 in made_here


def test_one_launch_alone_is_made_here(emulators: EmulatorPool, made_here: list[int]) -> None:
    module = helped(TWICE, emulators)
    module.foresee([launch(100)])
    assert module.run(launch(100)).arrays["y"][3] == 6
    assert made_here == [100]


def test_while_a_launch_is_waited_for_the_next_ones_are_made_here(
    emulators: EmulatorPool, made_here: list[int]
) -> None:
    module, (pid,) = helped(LOOPING, emulators), emulators.pids

    def wait_for_two() -> None:
        until = time.monotonic() + 60
        while len(made_here) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(pid, signal.SIGCONT)

    os.kill(pid, signal.SIGSTOP)
    runs = [launch(n) for n in (60, 20, 21)]
    module.foresee(runs)
    time.sleep(0.2)  # for the thread that hands them over to have handed over the first
    waiting = threading.Thread(target=wait_for_two)
    waiting.start()
    results = [module.run(run) for run in runs]
    waiting.join()
    assert made_here == [20, 21]
    assert all(result.findings == () for result in results)


def test_no_launch_is_lost_with_a_process(emulators: EmulatorPool, made_here: list[int]) -> None:
    module = helped(TWICE, emulators)
    os.kill(emulators.pids[0], signal.SIGKILL)
    runs = [launch(n) for n in range(100, 110)]
    module.foresee(runs)
    assert [module.run(run).arrays["y"][-1] for run in runs] == [2 * (n - 1) for n in range(100, 110)]
    assert sorted(made_here) == list(range(100, 110))


def test_what_is_too_large_says_the_same_as_here(emulators: EmulatorPool, made_here: list[int]) -> None:
    module, run = helped(TWICE, emulators), launch(100, total_limit=10)
    module.foresee([run, launch(101)])
    with pytest.raises(EmulationTooLarge) as elsewhere:
        module.run(run)
    with pytest.raises(EmulationTooLarge) as here:
        EmulatorBackend().load(compiled(TWICE), TARGET).run(run)
    assert str(elsewhere.value) == str(here.value)
    assert (elsewhere.value.limit, elsewhere.value.advice) == (here.value.limit, here.value.advice)


def test_a_tighter_limit_on_steps_is_kept(emulators: EmulatorPool) -> None:
    module = helped(LOOPING, emulators)
    module.foresee([launch(100), launch(101)])
    assert {finding.code for finding in module.run(launch(100, step_limit=20_000)).findings} == {"hang"}


def test_code_that_remembers_is_kept_in_one_place(emulators: EmulatorPool) -> None:
    module = ParallelEmulator(emulators).load(compiled(COUNTING), TARGET)
    assert not isinstance(module, SupportsPrefetch)
    assert [module.run(launch(100)).arrays["y"][0] for _ in range(3)] == [1, 2, 3]


def test_a_launch_that_was_begun_early_is_the_one_that_is_asked_for(
    emulators: EmulatorPool, made_here: list[int]
) -> None:
    backend, code = ParallelEmulator(emulators), compiled(TWICE)
    backend.begin(code, TARGET, launch(100))
    emulators.submit(code, TARGET, launch(50)).result()  # one process makes one after the other
    result = backend.load(code, TARGET).run(launch(100))
    assert made_here == []
    assert result.arrays["y"].tobytes() == (2 * np.arange(100, dtype=np.float32)).tobytes()
    backend.load(code, TARGET).run(launch(100))
    assert made_here == [100]


def test_a_launch_that_differs_from_the_one_begun_early_is_made_anew(
    emulators: EmulatorPool, made_here: list[int]
) -> None:
    backend, code = ParallelEmulator(emulators), compiled(TWICE)
    begun = launch(100)
    backend.begin(code, TARGET, begun)
    x = np.arange(100, dtype=np.float32)
    x[5] = 40
    other = replace(begun, arguments=(ArrayArgument("x", x, written=False), *begun.arguments[1:]))
    for different in (other, replace(begun, schedule_seed=3), replace(begun, count=True)):
        result = backend.load(code, TARGET).run(different)
        assert result.arrays["y"][5] == (80 if different is other else 10)
    assert made_here == [100, 100, 100]


def test_few_launches_are_begun_early_and_the_oldest_are_given_up(
    emulators: EmulatorPool, made_here: list[int]
) -> None:
    backend = ParallelEmulator(emulators)
    codes = [compiled(TWICE.replace("2 *", f"{factor} *")) for factor in range(2, 9)]
    for code in codes:
        backend.begin(code, TARGET, launch(100))
    values = [backend.load(code, TARGET).run(launch(100)).arrays["y"][1] for code in codes]
    assert values == [2, 3, 4, 5, 6, 7, 8]
    assert len(made_here) >= len(codes) - MOST_EARLY


def test_launches_with_much_memory_are_not_handed_over(emulators: EmulatorPool, made_here: list[int]) -> None:
    module = helped(TWICE, emulators)
    module.foresee([launch(8 << 20), launch(9 << 20)])
    module.run(launch(8 << 20))
    assert made_here == [8 << 20]


def test_what_was_foreseen_in_vain_is_given_up(emulators: EmulatorPool, made_here: list[int]) -> None:
    module = helped(TWICE, emulators)
    module.foresee([launch(n) for n in range(100, 160)])
    module.foresee(())
    assert module.run(launch(159)).arrays["y"][1] == 2
    assert made_here == [159]


def test_one_core_stays_with_the_one_that_judges() -> None:
    assert helper_count() == min(MOST_HELPERS, len(os.sched_getaffinity(0)) - 1)
