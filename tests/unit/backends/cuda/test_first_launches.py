"""The launches that the cuda backend has emulated first are enough to find what the emulator finds in all of them.

An emulator that checks nothing stands in for the GPU; tests/gpu/test_parity.py asks a real one, of every exploit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.backends.base import Module, Run, RunResult
from kernelmate.backends.cuda.backend import with_aligned_pointers
from kernelmate.backends.cuda.emulated_checks import EmulatedChecks
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator_pool import EmulatorPool
from kernelmate.checks.judge import judge
from kernelmate.compiler import find_target
from kernelmate.records import Compiled, CompileOptions, Judgement, JudgeTask, Target
from kernelmate.session.preparing import KernelPreparer
from kernelmate.source import contract_for, load_kernels, parse_contract

EXPLOITS = Path(__file__).resolve().parents[3] / "exploits"
CHOSEN = (
    "wrong/divergent_barrier", "wrong/missing_reuse_barrier", "wrong/neighbour_not_ready", "wrong/uninitialised_shared",
    "wrong/one_read_too_far", "wrong/reads_own_output", "wrong/misaligned_rows", "wrong/trap_at_odd_sizes", "wrong/positions_of_16_bits",
    "right/smaller_block",
)  # fmt: skip
"""Kernels whose faults appear in some launches only: by schedule, by size, by alignment."""


class StandInModule:
    """A module of the cuda backend whose GPU checks nothing."""

    def __init__(self, emulated: Module, companion: EmulatedChecks) -> None:
        self._emulated, self._companion = emulated, companion

    def foresee(self, runs: Iterable[Run]) -> None:
        self._companion.foresee(runs)

    def run(self, run: Run) -> RunResult:
        seen = self._companion.seen(run)
        if seen is not None and any(finding.severity == "error" for finding in seen.findings):
            return seen
        result = self._emulated.run(replace(with_aligned_pointers(run), check=False, count=False))
        return result if seen is None else replace(seen, arrays=result.arrays)


class StandIn:
    """The cuda backend with such a GPU."""

    name = "cuda"
    poisoned = False

    def __init__(self, emulators: EmulatorPool | None) -> None:
        self._emulators = emulators

    def load(self, compiled: Compiled, target: Target) -> StandInModule:
        emulated = EmulatorBackend().load(compiled, target)
        return StandInModule(emulated, EmulatedChecks(emulated, compiled, target, self._emulators))


@pytest.fixture(scope="module")
def emulators() -> Iterator[EmulatorPool]:
    processes = EmulatorPool(2)
    yield processes
    processes.close()


def judged(path: Path, backend: EmulatorBackend | StandIn) -> Judgement:
    name = re.search(r"^// baseline: (\S+)$", path.read_text(), flags=re.MULTILINE)
    assert name is not None
    target = find_target(None)
    preparer = KernelPreparer(target, CompileOptions(), 60.0)
    baseline, candidate = load_kernels(EXPLOITS / "baselines" / name[1])[0], load_kernels(path)[0]
    contract = contract_for(baseline)
    first = preparer.prepare(baseline, contract, None)
    second = preparer.prepare_candidate(candidate, parse_contract(candidate, contract) or contract, None)
    assert second.findings == ()
    directory = str(EXPLOITS / "baselines")
    task = JudgeTask(
        backend.name, target, second.version, first.version, None, (), 20261121, directory, timing_budget_s=0
    )
    return judge(task, backend, lambda *_: None, lambda *_: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CHOSEN)
def test_an_exploit_is_found_as_by_the_emulator_alone(name: str, emulators: EmulatorPool) -> None:
    path = EXPLOITS / f"{name}.cu"
    alone, beside, apart = (judged(path, one) for one in (EmulatorBackend(), StandIn(None), StandIn(emulators)))
    errors = [{f.code for f in one.findings if f.severity == "error"} for one in (alone, beside)]
    assert (alone.correct, errors[0]) == (beside.correct, errors[1])
    # Where the launches are emulated makes no difference at all.
    assert repr(apart) == repr(beside)
