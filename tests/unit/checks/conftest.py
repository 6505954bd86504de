"""A second implementation of the backend Protocol: kernels that are Python functions over NumPy arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult
from kernelmate.checks.judge import judge
from kernelmate.compiler import find_target
from kernelmate.records import Compiled, Contract, JudgeTask, Target, Unit, Version
from kernelmate.source import contract_for, find_kernels, text_unit
from tests.unit.checks.judging import DOUBLE, body, honest, task_of

Body = Callable[..., dict[str, Any] | None]


class PythonModule:
    """Calls the body with every argument by name; it writes to the arrays that it may write.

    A returned dictionary holds further fields of the run's result; `misalign` is passed to bodies with a parameter of this name.
    """

    def __init__(self, make: Callable[[], Body], runs: list[Run]) -> None:
        self._body, self._runs = make(), runs

    def run(self, run: Run) -> RunResult:
        self._runs.append(run)
        values = {a.name: a.data.copy() if isinstance(a, ArrayArgument) else a.value for a in run.arguments}
        arrays = [a for a in run.arguments if isinstance(a, ArrayArgument)]
        extra = {"schedule": run.schedule_seed, "misalign": arrays[0].misalign}
        named = inspect.signature(self._body).parameters
        with np.errstate(all="ignore"):
            noticed = self._body(**values, **{name: value for name, value in extra.items() if name in named})
        return RunResult({a.name: values[a.name] for a in arrays}, **{"checked": run.check} | (noticed or {}))


class PythonBackend:
    """Loads the body that was registered for a binary; loading again makes a fresh one."""

    name = "emulator"
    poisoned = False

    def __init__(self) -> None:
        self.bodies: dict[str | None, Callable[[], Body]] = {}
        self.runs: dict[str | None, list[Run]] = {}

    def load(self, compiled: Compiled, target: Target) -> PythonModule:
        return PythonModule(self.bodies[compiled.binary], self.runs.setdefault(compiled.binary, []))

    def version(self, contract: Contract, make: Callable[[], Body], name: str) -> Version:
        binary = f"sha256:{name}-{id(make)}"
        self.bodies[binary] = make
        compiled = Compiled(contract.kernel, None, contract.kernel, "sm_90", "none", True, (), binary=binary)
        return Version(compiled, contract, Unit("kernel.cu", ""))


@pytest.fixture
def python_backend() -> PythonBackend:
    return PythonBackend()


@pytest.fixture
def contract_of(tmp_path: Path) -> Callable[..., Contract]:
    """A contract from the lines of its block, over a kernel with the given parameters."""

    def make(block: str, parameters: str = "const float* x, float* y, int n", name: str = "k", **_: Any) -> Contract:
        lines = "\n".join(f"// {line}" for line in block.strip().splitlines())
        text = f'// /// kernelmate\n{lines}\n// ///\nextern "C" __global__ void {name}({parameters}) {{ }}\n'
        return contract_for(find_kernels(text_unit(text, str(tmp_path / "kernel.cu")))[0])

    return make


@pytest.fixture
def verdict_on(python_backend, contract_of, tmp_path):
    """Judge a body, against `honest` where `against` says so."""

    def judged(make, block=DOUBLE, against=True, seed=7, written=False, **contract_arguments):
        contract = contract_of(block, **contract_arguments)
        baseline = python_backend.version(contract, body(honest), "baseline") if against else None
        task = JudgeTask(
            "emulator", find_target(None), python_backend.version(contract, make, "candidate"), baseline, None, (),
            seed, str(tmp_path), written=written,
        )  # fmt: skip
        return judge(task, python_backend, lambda *_: None, lambda *_: None)

    return judged


@pytest.fixture
def compared(python_backend, contract_of, tmp_path):
    """Judge one body against another."""

    def judged(candidate, baseline, block=DOUBLE):
        contract = contract_of(block)
        task = task_of(
            python_backend.version(contract, body(candidate), "candidate"),
            python_backend.version(contract, body(baseline), "baseline"), tmp_path,
        )  # fmt: skip
        return judge(task, python_backend, lambda *_: None, lambda *_: None)

    return judged
