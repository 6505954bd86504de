"""A second implementation of the backend Protocol: kernels that are Python functions over NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult
from kernelmate.records import Compiled, Contract, Target, Unit, Version
from kernelmate.source import contract_for, find_kernels, text_unit

Body = Callable[..., None]


class PythonModule:
    """Calls the body with every argument by name; it writes to the arrays that it may write."""

    def __init__(self, make: Callable[[], Body]) -> None:
        self._body = make()

    def run(self, run: Run) -> RunResult:
        values = {a.name: a.data.copy() if isinstance(a, ArrayArgument) else a.value for a in run.arguments}
        self._body(**values, schedule=run.schedule_seed)
        return RunResult({a.name: values[a.name] for a in run.arguments if isinstance(a, ArrayArgument)})


class PythonBackend:
    """Loads the body that was registered for a binary; loading again makes a fresh one."""

    name = "emulator"

    def __init__(self) -> None:
        self.bodies: dict[str | None, Callable[[], Body]] = {}

    def load(self, compiled: Compiled, target: Target) -> PythonModule:
        return PythonModule(self.bodies[compiled.binary])

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
