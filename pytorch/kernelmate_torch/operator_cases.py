"""Test cases of exported operators: inputs by the kernel's contract, and the results that its reference expects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.checks.canonical import canonical
from kernelmate.checks.case_launches import FIRST, Bench, PlannedLaunch
from kernelmate.checks.compare import compare
from kernelmate.checks.inputs import draw
from kernelmate.checks.large_references import kernel_reference
from kernelmate.checks.reference import python_reference
from kernelmate.checks.styles import NORMAL
from kernelmate.checks.tolerances import derive, with_vanished
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions, Contract, JudgeTask, Kernel, Version
from kernelmate.source import argument_shapes, contract_for, load_kernel, numpy_dtype

SEED = (7,)


@dataclass(frozen=True, slots=True)
class OperatorCase:
    """One size of a contract.

    Attributes:
        size: the size.
        arrays: inputs by argument.
        extra: sizes that the operator takes as arguments.
        reference: what gives the expected results; None if there is none.
        exact: the reference computes in float64.
    """

    contract: Contract
    size: Mapping[str, int]
    arrays: Mapping[str, Any]
    extra: tuple[str, ...]
    reference: Any = None
    exact: bool = True

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.size.items())

    def arguments(self, device: str | torch.device = "cpu") -> tuple[Any, ...]:
        """Returns the operator's arguments, without its scalars: new tensors on a device, then sizes."""
        tensors = (_tensor(self.arrays[a.name]).to(device) for a in self._taken)
        return (*tensors, *(self.size[name] for name in self.extra))

    def check(self, returned: Any, arguments: Sequence[Any]) -> None:
        """Compares results with the reference, within the tolerances of a verdict.

        Args:
            returned: what the operator returned.
            arguments: what it was given, of which it may have changed some in place.

        Raises:
            AssertionError: a result is outside of its tolerance; the message has the first wrong element.
        """
        outputs = [a.name for a in self.contract.args if a.direction == "out"]
        got = dict(zip(outputs, returned if isinstance(returned, tuple) else (returned,), strict=False))
        got |= {a.name: one for a, one in zip(self._taken, arguments, strict=False) if a.direction == "inout"}
        found = canonical(self.contract, self.size, {name: _array(one) for name, one in got.items()}, self.arrays)
        shapes = argument_shapes(self.contract, self.size)
        assert {name: one.shape for name, one in found.items()} == {name: shapes[name] for name in found}
        if self.reference is None:
            return
        arrays = dict(self.arrays)
        want = self.reference(arrays, self.size)
        allowed = derive(self.contract, self.reference, arrays, self.size, want, SEED, exact=self.exact)
        allowed = with_vanished(self.contract, allowed, want, arrays)
        for name, one in found.items():
            difference = compare(name, one, want[name], allowed.error[name])
            assert difference.right, f"{name} is {difference.error:.3g} tolerances off: {difference.first}"

    @property
    def _taken(self) -> list[Any]:
        return [a for a in self.contract.args if a.direction in ("in", "inout")]


def contract_cases(spec: str, extra: Sequence[str] = (), *, most_elements: int = 1 << 16) -> list[OperatorCase]:
    """Returns the listed sizes of a kernel's contract that a test on the CPU can take, with inputs by the contract.

    The user's reference and `inputs` function run in this process. A kernel that the contract names as reference runs in
    the emulator.

    Args:
        spec: `FILE::KERNEL`, the file as it was judged.
        extra: sizes that the operator takes as arguments.
        most_elements: elements of all arrays together up to which a size is taken; the smallest one always is.

    Raises:
        KernelmateError: the file, its contract or its reference cannot be used.
    """
    kernel = load_kernel(spec)
    contract = contract_for(kernel)
    directory = Path(kernel.unit.path).resolve().parent
    reference, exact = _reference(kernel, contract, directory)
    elements = [sum(map(math.prod, argument_shapes(contract, size).values())) for size in contract.sizes]
    most = max(most_elements, min(elements))
    return [
        OperatorCase(contract, size, draw(contract, size, SEED, NORMAL, directory), tuple(extra), reference, exact)
        for size, count in zip(contract.sizes, elements, strict=True)
        if count <= most
    ]


def small_case(
    spec: str, extra: Sequence[str], sizes: Mapping[str, int]
) -> OperatorCase:  # fmt: skip
    """Returns a case of another size, for tests that launch a kernel once for every element.

    Args:
        spec: as for `contract_cases`, and likewise `extra`.
        extra: sizes that the operator takes as arguments.
        sizes: the size.
    """
    kernel = load_kernel(spec)
    contract = contract_for(kernel)
    directory = Path(kernel.unit.path).resolve().parent
    return OperatorCase(contract, sizes, draw(contract, sizes, SEED, NORMAL, directory), tuple(extra))


def _reference(kernel: Kernel, contract: Contract, directory: Path) -> tuple[Any, bool]:
    """Returns the reference, and True if it computes in float64."""
    if contract.reference_kind != "kernel":
        return python_reference(contract, directory), True
    other = load_kernel(f"{kernel.unit.path}::{contract.reference}")
    theirs = contract_for(other)
    target = find_target(None)
    compiled = compile_kernel(other, theirs.options, instance=None, target=target, options=CompileOptions())
    version = Version(compiled, theirs, other.unit)
    task = JudgeTask("emulator", target, version, None, None, (), SEED[0], str(directory))
    return kernel_reference(
        contract, Bench(EmulatorBackend(), task, version), PlannedLaunch(FIRST, NORMAL, 0, 0)
    ), False


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Returns a tensor with a copy of an array."""
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(np.array(array, order="C"))
    bits = np.array(array, order="C").view(np.uint8 if array.dtype.itemsize == 1 else np.int16)
    return torch.from_numpy(bits).view(getattr(torch, array.dtype.name))


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    plain = tensor.detach().cpu()
    dtype = numpy_dtype(str(plain.dtype).removeprefix("torch."))
    if dtype.isbuiltin == 1:
        return np.asarray(plain.numpy())
    return np.asarray(plain.view(torch.uint8 if plain.itemsize == 1 else torch.int16).numpy()).view(dtype)
