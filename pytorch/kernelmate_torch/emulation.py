"""CPU implementation of exported operators: the kernel's launch in the emulator, on tensors in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch

from kernelmate.backends.base import (
    ArrayArgument,
    EmulationTooLarge,
    Module,
    Run,
    ScalarArgument,
    UnsupportedInstruction,
)
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import find_target
from kernelmate.compiler.standalone import StandaloneText, compile_standalone
from kernelmate.records import LaunchShape
from kernelmate.source import numpy_dtype

COMPILE_S = 120.0
"""Seconds after which the compiler is killed."""

_BITS = {1: torch.uint8, 2: torch.int16}


class ExportedKernel(Protocol):
    """A kernel of an exported package, `CudaKernel` of its module `launching`."""

    name: str
    file: str
    parameters: Sequence[Any]
    options: tuple[str, ...]
    target: str
    cooperative: bool

    @property
    def text(self) -> str:
        """The text for the compiler."""
        ...


def emulate(
    kernel: ExportedKernel, values: Sequence[Any], grid: tuple[int, ...], block: tuple[int, ...], shared: int
) -> None:
    """Launches a kernel once in the emulator, and writes its results to the tensors.

    Args:
        kernel: the kernel, with its text.
        values: a contiguous CPU tensor, or a NumPy scalar with the bits of its dtype, for each parameter.
        grid: blocks along x, y and z.
        block: threads of a block along x, y and z.
        shared: bytes of dynamic shared memory of a block.

    Raises:
        RuntimeError: the emulator does not know an instruction, found an error, or would take too long; two tensors
            share memory that is written.
    """
    given = list(zip(kernel.parameters, values, strict=True))
    arrays = {one.name: host_array(value) for one, value in given if isinstance(value, torch.Tensor)}
    written = {one.name for one, value in given if isinstance(value, torch.Tensor) and one.direction != "in"}
    _refuse_overlaps(kernel, arrays, written)
    arguments = tuple(_argument(one, value, arrays, written) for one, value in given)
    shape = LaunchShape(_three(grid), _three(block), shared, kernel.cooperative)
    try:
        module = _module(kernel.text, kernel.name, kernel.options, kernel.target)
        result = module.run(Run(shape, arguments, check=False))
    except EmulationTooLarge as error:
        raise RuntimeError(f"{kernel.name}: {error}. On the CPU, use smaller tensors.") from None
    except UnsupportedInstruction as error:
        raise RuntimeError(
            f"{kernel.name} cannot be emulated: {error.finding.message}. Move the tensors to a GPU."
        ) from None
    errors = [finding for finding in result.findings if finding.severity == "error"]
    if errors:
        line = f", line {errors[0].line}" * (errors[0].line is not None)
        raise RuntimeError(f"{kernel.name}: {errors[0].message} ({errors[0].code}; {kernel.file}{line}).")
    for name in written:
        np.copyto(arrays[name], result.arrays[name].reshape(arrays[name].shape))


@lru_cache(maxsize=256)
def _module(text: str, name: str, options: tuple[str, ...], target: str) -> Module:
    """Returns the loaded kernel; compiled once per process, and found in the compiler's memory afterwards."""
    gpu = find_target(target)
    compiled = compile_standalone(StandaloneText(text, "", name, options), gpu, timeout_s=COMPILE_S)
    return EmulatorBackend().load(compiled, gpu)


def host_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Returns a NumPy view of a CPU tensor; of dtypes that NumPy lacks, with those of ml_dtypes."""
    name = str(tensor.dtype).removeprefix("torch.")
    plain = tensor.detach()
    dtype = numpy_dtype(name)
    if dtype.isbuiltin != 1:  # ml_dtypes', which torch cannot give to NumPy
        plain = plain.view(_BITS[dtype.itemsize])
    return np.asarray(plain.numpy()).view(dtype)


def _argument(
    parameter: Any, value: Any, arrays: dict[str, np.ndarray[Any, Any]], written: set[str]
) -> ArrayArgument | ScalarArgument:
    if parameter.name in arrays:
        return ArrayArgument(parameter.name, arrays[parameter.name], written=parameter.name in written)
    scalar: Any = np.asarray(value).view(numpy_dtype(parameter.dtype))[()]
    return ScalarArgument(parameter.name, scalar)


def _refuse_overlaps(kernel: ExportedKernel, arrays: dict[str, np.ndarray[Any, Any]], written: set[str]) -> None:
    """Refuses tensors that share memory: the emulator copies each, so that two views of one would diverge."""
    for name in written:
        for other, array in arrays.items():
            if other != name and np.shares_memory(arrays[name], array):
                raise RuntimeError(
                    f"{kernel.name}: {name} and {other} share memory, and {name} is written: pass a clone."
                )


def _three(sides: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*sides, 1, 1)[:3]
    return int(x), int(y), int(z)
