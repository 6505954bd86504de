"""Every launch that the contracts of a folder of kernels list, ready for any backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelmate.backends.base import Backend, Module, Run, RunResult
from kernelmate.checks.case_launches import FIRST, Bench, PlannedLaunch, inputs_for
from kernelmate.checks.styles import NORMAL
from kernelmate.compiler import compile_kernel
from kernelmate.records import Compiled, CompileOptions, Contract, JudgeTask, Size, Target, Version
from kernelmate.source import contract_for, load_kernels

SEED = 20261121


@dataclass(frozen=True, slots=True)
class Listed:
    """One listed size of one instance of one kernel."""

    name: str
    path: Path
    compiled: Compiled
    contract: Contract
    size: Size
    run: Run

    @property
    def size_words(self) -> str:
        """`rows=37 cols=853`."""
        return " ".join(f"{name}={value}" for name, value in self.size.items())


class _Unrun:
    """A backend that only takes launches in."""

    name = "emulator"
    poisoned = False

    def load(self, compiled: Compiled, target: Target) -> Module:
        return self

    def run(self, run: Run) -> RunResult:
        raise AssertionError("nothing is run here")


def listed_launches(paths: list[Path], target: Target, *, headline_only: bool = False) -> Iterator[Listed]:
    """The launches of all kernels of the files that compile; inputs are drawn again for each size, equal for equal calls."""
    backend: Backend = _Unrun()
    for path in paths:
        for kernel in load_kernels(path):
            contract = contract_for(kernel)
            for instance in contract.instances or (None,):
                compiled = compile_kernel(
                    kernel, contract.options, instance=instance, target=target, options=CompileOptions()
                )
                if not compiled.ok or contract.inferred:
                    continue
                version = Version(compiled, contract, kernel.unit)
                task = JudgeTask("emulator", target, version, None, None, (), SEED, str(path.parent))
                bench = Bench(backend, task, version)
                for size in contract.sizes[: 1 if headline_only else None]:
                    shot = PlannedLaunch(FIRST, NORMAL, 0, 1)
                    given = inputs_for(contract, size, shot, SEED, path.parent)
                    name = f"{path.stem}::{instance or kernel.name}"
                    yield Listed(name, path, compiled, contract, size, bench.launch(size, shot, given))
