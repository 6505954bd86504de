"""Launches of a program without a GPU: each runs in the emulator on arrays of the host, and is recorded.

Runs in the program's own process, for the stand-ins of its GPU libraries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from kernelmate.backends.base import (
    ArrayArgument,
    EmulationTooLarge,
    HeldAddress,
    Module,
    Run,
    RunResult,
    ScalarArgument,
    UnsupportedInstruction,
)
from kernelmate.capture.recorder import ReportedLaunch
from kernelmate.capture.records import LaunchHeader, kernel_in_text
from kernelmate.errors import KernelmateError
from kernelmate.records import Compiled, CompileOptions, Contract, Kernel, LaunchShape, Target

TARGET = "H100 SXM"
"""GPU that programs are emulated for: the default target without a GPU."""

COMPILE_S = 120.0

Array = np.ndarray[Any, np.dtype[Any]]


class EmulatedLaunchFailed(RuntimeError):
    """A launch failed in the emulator: the kernel does not compile, is not supported, or did something wrong."""


@dataclass(frozen=True, slots=True)
class EmulatedKernel:
    """A kernel of the program, ready to run.

    Attributes:
        name: as the program calls it.
        module: its loaded code.
        names: of the parameters that a launch passes.
        dtypes: for each of them, the dtype of a number, or None for an address.
        facts: its text and options, for records.
    """

    name: str
    module: Module
    names: tuple[str, ...]
    dtypes: tuple[str | None, ...]
    facts: LaunchHeader


@lru_cache(maxsize=64)
def cuda_kernel(code: str, name: str, options: tuple[str, ...], cooperative: bool) -> EmulatedKernel:
    """Compiles CUDA text for the emulator.

    Args:
        code: the text.
        name: the kernel's name, or an instance of a template.
        options: compiler options.
        cooperative: launch it cooperatively.

    Raises:
        EmulatedLaunchFailed: the text has no such kernel, or it does not compile.
    """
    from kernelmate.compiler import compile_kernel, find_target

    kernel = kernel_in_text(code, name)
    if kernel is None:
        raise EmulatedLaunchFailed(f"there is no kernel {name} in the text")
    instance = name if kernel.signature.template_parameters else None
    target = find_target(TARGET)
    try:
        compiled = compile_kernel(
            kernel, options, instance=instance, target=target, options=CompileOptions(), timeout_s=COMPILE_S
        )
    except KernelmateError as error:
        raise EmulatedLaunchFailed(f"{name}: {error}") from None
    names = tuple(one.name for one in kernel.signature.parameters)
    dtypes = tuple(None if one.pointer else one.dtype for one in kernel.signature.parameters)
    facts = LaunchHeader(name, (1, 1, 1), (1, 1, 1), cooperative=cooperative, source=code, options=options)
    return EmulatedKernel(name, _loaded(kernel, compiled, target), names, dtypes, facts)


def triton_kernel(kernel: Kernel, contract: Contract) -> tuple[EmulatedKernel, Contract]:
    """Compiles a Triton function for the emulator; returns it, and the contract completed from the compiled code.

    Args:
        kernel: the function.
        contract: gives the types and constants of a launch.

    Raises:
        EmulatedLaunchFailed: it does not compile.
    """
    from kernelmate.compiler import find_target
    from kernelmate.compiler.triton import compile_triton, with_launch_facts
    from kernelmate.source.triton_contract import completed

    target = find_target(TARGET)
    whole = completed(contract)
    try:
        compiled = compile_triton(kernel, whole, target=target, timeout_s=COMPILE_S, cache_dir=None)
    except KernelmateError as error:
        raise EmulatedLaunchFailed(f"{kernel.name}: {error}") from None
    whole = with_launch_facts(whole, compiled)
    names = tuple(one.name for one in contract.args)
    facts = LaunchHeader(
        kernel.name, (1, 1, 1), (1, 1, 1), options=contract.options, language="triton", file=kernel.unit.path
    )
    return EmulatedKernel(kernel.name, _loaded(kernel, compiled, target), names, (None,) * len(names), facts), whole


def _loaded(kernel: Kernel, compiled: Compiled, target: Target) -> Module:
    from kernelmate.backends.emulator import EmulatorBackend

    if not compiled.ok:
        said = next((one for one in compiled.diagnostics if one.severity == "error"), None) or next(
            iter(compiled.diagnostics), None
        )
        line = f" (line {said.line})" if said and said.line is not None else ""
        raise EmulatedLaunchFailed(
            f"{kernel.name} does not compile: {said.message if said else 'the compiler gave no reason'}{line}"
        )
    try:
        return EmulatorBackend().load(compiled, target)
    except UnsupportedInstruction as error:
        raise EmulatedLaunchFailed(f"{kernel.name} cannot be emulated: {error.finding.message}") from None


# ------------------------------------------------------------------------------------------------------- launches


def launch(
    kernel: EmulatedKernel, shape: LaunchShape, values: Sequence[Array | np.generic], *,
    passed: Sequence[bool] | None = None, scratch: int = 0,
) -> None:  # fmt: skip
    """Launches once on arrays of the host, which get the results, and records the launch if it is wanted.

    Args:
        kernel: the kernel.
        shape: grid, block and shared bytes.
        values: an array of the host for each address, or a NumPy scalar; in the order of the parameters.
        passed: False for those that are not parameters of the compiled code; None passes all.
        scratch: addresses that the compiler added after them, which are never used.

    Raises:
        EmulatedLaunchFailed: the emulator refused the launch, or found an error; arrays are then unchanged.
    """
    facts = replace(
        kernel.facts, grid=shape.grid, block=shape.block, shared=shape.shared_bytes, cooperative=shape.cooperative
    )
    noted = ReportedLaunch.of(facts, values)
    try:
        flat = [_flat(value, place) if isinstance(value, np.ndarray) else value for place, value in enumerate(values)]
        given = _arguments(kernel, flat)
        arguments = [one for place, one in enumerate(given) if passed is None or passed[place]]
        arguments += [ScalarArgument("scratch", np.uint64(0))] * scratch
        run = Run(shape, tuple(arguments), check=False)
        result = _run(kernel, run)
    except EmulatedLaunchFailed:
        noted.fail()
        raise
    before = noted.copies(values)
    written = _wholly_written(kernel, run, result) if noted.taken else frozenset()
    for one in arguments:
        if isinstance(one, ArrayArgument):
            np.copyto(flat[kernel.names.index(one.name)], result.arrays[one.name].reshape(-1))  # type: ignore[arg-type]
    if result.printed:
        print(result.printed, end="")
    own = {place: kernel.names[place if held is None else held[0]] for place, held in enumerate(_holders(flat))}
    noted.record(values, before, {place: (name in result.reads, name in written) for place, name in own.items()})


@contextlib.contextmanager
def noted_failure(name: str, shape: LaunchShape, values: Sequence[Array | np.generic]) -> Iterator[None]:
    """Context manager in which a kernel is compiled for a launch: if it is refused, the launch is counted as a failed one."""
    try:
        yield
    except EmulatedLaunchFailed:
        ReportedLaunch.of(LaunchHeader(name, shape.grid, shape.block, shape.shared_bytes), values).fail()
        raise


def _flat(array: Array, place: int) -> Array:
    """Returns an array's memory as one dimension, in its order; both share it."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    if array.flags.f_contiguous:
        return array.reshape(-1, order="F")
    raise EmulatedLaunchFailed(
        f"argument {place + 1} is a view with gaps, which the stand-in cannot pass: pass a contiguous copy"
    )


def _arguments(kernel: EmulatedKernel, flat: Sequence[Array | np.generic]) -> list[ArrayArgument | ScalarArgument]:
    """Returns the arguments that the emulator passes; an array within another one becomes an address in it."""
    from kernelmate.source import numpy_dtype

    if len(flat) != len(kernel.names):
        raise EmulatedLaunchFailed(
            f"{kernel.name} takes {len(kernel.names)} arguments ({', '.join(kernel.names)}), and {len(flat)} were passed"
        )
    found: list[ArrayArgument | ScalarArgument] = []
    for name, dtype, value, holder in zip(kernel.names, kernel.dtypes, flat, _holders(flat), strict=True):
        if isinstance(value, np.ndarray) and holder is None:
            found.append(ArrayArgument(name, value))
        elif isinstance(value, np.ndarray):
            other, start = holder or (0, 0)
            found.append(ScalarArgument(name, np.uint64(0), (HeldAddress(0, kernel.names[other], start),)))
        elif dtype is not None and value.nbytes >= numpy_dtype(dtype).itemsize:
            # The kernel reads as many bytes as its type has.
            data = value.tobytes()[: numpy_dtype(dtype).itemsize]
            found.append(ScalarArgument(name, np.frombuffer(data, numpy_dtype(dtype))[0]))
        else:
            found.append(ScalarArgument(name, value))
    return found


def _holders(flat: Sequence[Array | np.generic]) -> list[tuple[int, int] | None]:
    """Returns for each array the one that contains its memory, with the offset in bytes; None for those of their own."""
    spans = {place: (one.ctypes.data, one.nbytes) for place, one in enumerate(flat) if isinstance(one, np.ndarray)}
    found: list[tuple[int, int] | None] = [None] * len(flat)
    for place, (start, size) in spans.items():
        for other, (first, length) in spans.items():
            larger = (length, -other) > (size, -place)
            if other != place and larger and first <= start and start + size <= first + length:
                found[place] = (other, start - first)
                break
    return found


def _run(kernel: EmulatedKernel, run: Run) -> RunResult:
    try:
        result = kernel.module.run(run)
    except EmulationTooLarge as error:
        raise EmulatedLaunchFailed(f"{kernel.name}: {error}; launch it with smaller arrays") from None
    errors = [finding for finding in result.findings if finding.severity == "error"]
    if errors:
        line = f", line {errors[0].line}" * (errors[0].line is not None)
        raise EmulatedLaunchFailed(f"{kernel.name}: {errors[0].message} ({errors[0].code}{line})")
    return result


def _wholly_written(kernel: EmulatedKernel, run: Run, first: RunResult) -> frozenset[str]:
    """Returns the arrays of which a launch stores every element, by a second launch over other contents of those it does not read."""
    unread = [one for one in run.arguments if isinstance(one, ArrayArgument) and one.name not in first.reads]
    changed = {one.name for one in unread if first.arrays[one.name].tobytes() != one.data.tobytes()}
    if not changed:
        return frozenset()
    inverted = [
        replace(one, data=(~one.data.view(np.uint8)).view(one.data.dtype))
        if isinstance(one, ArrayArgument) and one.name in changed
        else one
        for one in run.arguments
    ]
    second = _run(kernel, replace(run, arguments=tuple(inverted)))
    return frozenset(name for name in changed if first.arrays[name].tobytes() == second.arrays[name].tobytes())
