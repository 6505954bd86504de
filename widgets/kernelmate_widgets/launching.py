"""Launches an accepted kernel in this process: on the GPU in place, or in the emulator on arrays in host memory.

A Triton kernel is also launched in Triton's syntax: `k[grid](x, y, n, BLOCK=1024)`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from kernelmate.backends.base import ArrayArgument, EmulationTooLarge, Run, ScalarArgument, UnsupportedInstruction
from kernelmate.errors import (
    BackendUnavailable,
    ContractError,
    DeviceFailed,
    KernelmateError,
    LaunchTooLarge,
    UsageError,
)
from kernelmate.records import BackendName, Compiled, Contract, Finding, Kernel, LaunchShape, Target
from kernelmate.source import launch_shape
from kernelmate.source.triton import function_of
from kernelmate.source.triton_contract import values_of
from kernelmate_widgets.arguments import CallArgument
from kernelmate_widgets.cells import short_name


class LaunchFailed(KernelmateError):
    """A launch of an accepted kernel failed; the message is the backend's first error.

    Attributes:
        findings: the backend's findings, with line numbers of the cell.
    """

    code = "launch-failed"

    def __init__(self, findings: Sequence[Finding], kernel: Kernel) -> None:
        self.findings = tuple(findings)
        first = findings[0]
        line, column = first.line, first.column
        if line is not None:
            line, column = kernel.unit.locate(line, column)
        super().__init__(
            f"{first.code}: {first.message}",
            file=kernel.unit.path,
            line=line,
            column=column,
            hint="Check the sizes, grid and block of this call; arrays that it writes may hold anything now.",
        )


class Launcher(Protocol):
    """Interface of a compiled kernel that is loaded in this process."""

    @property
    def raw(self) -> Any:
        """The `cupy.RawKernel`; None in the emulator."""
        ...

    def launch(self, shape: LaunchShape, given: Sequence[CallArgument]) -> None:
        """Launches once; asynchronous on a GPU, synchronous in the emulator.

        Raises:
            LaunchFailed: the backend reported an error.
            UsageError: the arguments cannot be used.
        """
        ...


def make_launcher(
    backend: BackendName, kernel: Kernel, compiled: Compiled, target: Target, contract: Contract | None = None
) -> Launcher:
    """Creates a launcher for the judged code, without compiling again.

    Args:
        backend: the backend to run on.
        kernel: the kernel.
        compiled: the judged code.
        target: the GPU that the code was compiled for.
        contract: for a Triton kernel, the contract with the shared memory and parameters that the compiler added; else
            None.

    Raises:
        BackendUnavailable: the code cannot be loaded here.
    """
    try:
        if backend == "cuda":
            return GpuLauncher(kernel, compiled, contract)
        return EmulatorLauncher(kernel, compiled, target, contract)
    except UnsupportedInstruction as error:
        message = f"{kernel.name} cannot be launched here: {error.finding.message}."
        raise BackendUnavailable(message, hint="Judge it with another backend.") from None


class EmulatorLauncher:
    """Launches in the emulator; results are written to the caller's arrays."""

    raw = None

    def __init__(self, kernel: Kernel, compiled: Compiled, target: Target, contract: Contract | None = None) -> None:
        from kernelmate.backends.emulator import EmulatorBackend

        self._kernel, self._contract = kernel, contract
        self._module = EmulatorBackend().load(compiled, target)

    def launch(self, shape: LaunchShape, given: Sequence[CallArgument]) -> None:
        """Launches once, and waits; a failed launch leaves the arrays unchanged.

        Raises:
            LaunchFailed: the emulator reported an error.
            UsageError: two arrays share memory that is written.
            LaunchTooLarge: the launch exceeds the emulator's limits.
        """
        held = {one.argument.name: one.array.shared() for one in given if one.array is not None}
        _refuse_overlaps(given, held)
        arguments = tuple(
            ScalarArgument("scratch", np.uint64(0)) if one is None else _argument(one, held)
            for one in _in_order(given, self._contract)
        )
        try:
            result = self._module.run(Run(_with_shared(shape, self._contract), arguments, check=False))
        except EmulationTooLarge as error:
            raise LaunchTooLarge(str(error), hint=f"Launch less at once, or {error.advice}.") from None
        errors = [finding for finding in result.findings if finding.severity == "error"]
        if errors:
            raise LaunchFailed(errors, self._kernel)
        for one in given:
            if one.array is not None and one.argument.direction != "in":
                array = held[one.argument.name]
                np.copyto(array, result.arrays[one.argument.name].reshape(array.shape))
        if result.printed:
            print(result.printed, end="")


def _in_order(given: Sequence[CallArgument], contract: Contract | None) -> list[CallArgument | None]:
    """Returns the arguments in parameter order; None for a parameter that the compiler added and never uses."""
    if contract is None or not contract.passing:
        return list(given)
    named = {one.argument.name: one for one in given}
    return [None if one.kind == "null" else named[one.name] for one in contract.passing]


def _with_shared(shape: LaunchShape, contract: Contract | None) -> LaunchShape:
    """Returns the launch with the amount of shared memory that Triton's compiler determined."""
    if contract is None or not contract.passing or not contract.shared.isdigit():
        return shape
    return replace(shape, shared_bytes=int(contract.shared))


def _argument(one: CallArgument, held: dict[str, np.ndarray[Any, Any]]) -> ArrayArgument | ScalarArgument:
    name = one.argument.name
    if one.array is None:
        assert one.scalar is not None
        return ScalarArgument(name, one.scalar)
    return ArrayArgument(name, held[name], written=one.argument.direction != "in")


def _refuse_overlaps(given: Sequence[CallArgument], held: dict[str, np.ndarray[Any, Any]]) -> None:
    """Checks that no written array overlaps another: the emulator copies each argument, and the copies would diverge.

    Raises:
        UsageError: two arrays share memory.
    """
    for one in given:
        if one.array is None or one.argument.direction == "in":
            continue
        name = one.argument.name
        for other, array in held.items():
            if other != name and np.shares_memory(held[name], array):
                raise UsageError(
                    f"{name} and {other} share memory, and {name} is written.",
                    hint="The emulator cannot launch with that; give arrays of their own.",
                )


class GpuLauncher:
    """Launches on the GPU of the arrays, on its current stream, without copying."""

    def __init__(self, kernel: Kernel, compiled: Compiled, contract: Contract | None = None) -> None:
        self._kernel, self._contract = kernel, contract
        self._compiled = compiled
        self._loaded: dict[bool, Any] = {}

    @property
    def raw(self) -> Any:
        """The `cupy.RawKernel` of the judged code."""
        return self._function(cooperative=False)

    def _function(self, *, cooperative: bool) -> Any:
        from kernelmate.backends.cuda.loading import load_function

        if cooperative not in self._loaded:
            self._loaded[cooperative] = load_function(self._compiled, cooperative=cooperative)
        return self._loaded[cooperative]

    def launch(self, shape: LaunchShape, given: Sequence[CallArgument]) -> None:
        """Launches once, asynchronously; an error in the kernel is reported at the next synchronisation.

        Raises:
            LaunchFailed: the driver refuses the launch.
            DeviceFailed: the GPU's context is lost.
        """
        import cupy

        from kernelmate.backends.cuda.backend import STATIC_SHARED_LIMIT
        from kernelmate.backends.cuda.launching import launch_in_clusters, numpy_scalar

        arrays = [one.array for one in given if one.array is not None]
        device = arrays[0].device if arrays else None
        shape = _with_shared(shape, self._contract)
        arguments = tuple(
            np.uint64(0)
            if one is None
            else np.uint64(one.array.pointer)
            if one.array is not None
            else numpy_scalar(_argument(one, {}), {})  # type: ignore[arg-type]
            for one in _in_order(given, self._contract)
        )
        try:
            with cupy.cuda.Device(device), _stream(given):
                function = self._function(cooperative=shape.cooperative)
                if shape.shared_bytes + function.shared_size_bytes > STATIC_SHARED_LIMIT:
                    function.max_dynamic_shared_size_bytes = shape.shared_bytes
                if shape.cluster is None:
                    function(shape.grid, shape.block, arguments, shared_mem=shape.shared_bytes)
                else:
                    launch_in_clusters(function, shape, arguments, cupy.cuda.get_current_stream().ptr)
        except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
            raise self._failure(int(error.status), str(error)) from None

    def _failure(self, status: int, words: str) -> KernelmateError:
        from kernelmate.backends.cuda.loading import fault_of

        try:
            return LaunchFailed((fault_of(status, words, traps=False).finding,), self._kernel)
        except DeviceFailed as error:
            return error


def _stream(given: Sequence[CallArgument]) -> Any:
    """Returns the stream of the arrays' library, so that the launch follows its pending work."""
    import cupy

    if any(one.array is not None and one.array.library == "torch" for one in given):
        import torch

        stream = torch.cuda.current_stream()
        if hasattr(stream, "__cuda_stream__") and hasattr(cupy.cuda.Stream, "from_external"):
            return cupy.cuda.Stream.from_external(stream)
        return cupy.cuda.ExternalStream(stream.cuda_stream)
    return cupy.cuda.get_current_stream()


def triton_arguments(
    kernel: Kernel, contract: Contract, values: Sequence[object], named: Mapping[str, object]
) -> list[object]:
    """Returns the values of a launch's arguments, in the order of the contract's arguments.

    Args:
        kernel: the jitted function.
        contract: the contract, which has the judged constants.
        values: positional arguments, in the order of the function's parameters.
        named: keyword arguments: parameters, constants and settings such as `num_warps`.

    Raises:
        UsageError: an argument is missing, given twice or unknown, or a constant differs from the judged one.
    """
    name = short_name(kernel)
    parameters = [one.name for one in function_of(kernel).parameters]
    if len(values) > len(parameters):
        raise UsageError(
            f"{name} takes {len(parameters)} arguments ({', '.join(parameters)}); {len(values)} were given.",
            hint="Give the arguments in the function's order.",
        )
    given = dict(zip(parameters, values, strict=False))
    twice = next((one for one in named if one in given), None)
    if twice is not None:
        raise UsageError(f"{name} is given {twice} twice.", hint="Give it by its position or by its name.")
    given |= named
    judged = values_of(contract)
    unknown = next((one for one in given if one not in parameters and one not in judged), None)
    if unknown is not None:
        raise UsageError(f"{name} has no parameter {unknown}.", hint=f"It has {', '.join(parameters)}.")
    for one, text in judged.items():
        if one in given and not _is_judged(given[one], text):
            raise UsageError(
                f"{one} = {given[one]} is not what was judged: {one} = {text}.",
                hint="Leave it out, or change `options` in the contract and run the cell again.",
            )
    missing = [one.name for one in contract.args if one.name not in given]
    if missing:
        raise UsageError(
            f"{name} is launched without {', '.join(missing)}.", hint="Give each argument of the contract."
        )
    return [given[one.name] for one in contract.args]


def triton_shape(kernel: Kernel, grid: Any, contract: Contract) -> LaunchShape:
    """Returns the launch for a Triton grid: a number, a tuple of up to three, or a function of the constants.

    Raises:
        UsageError: the value is not a grid.
    """
    if callable(grid):
        grid = grid({name: _value(text) for name, text in values_of(contract).items()})
    sides = grid if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(sides) <= 3 or not all(hasattr(one, "__index__") and not isinstance(one, bool) for one in sides):
        raise UsageError(
            f"{grid!r} is not a grid.", hint=f"Write {short_name(kernel)}[(blocks,)](...), with up to three numbers."
        )
    fixed = replace(contract, grid=tuple(str(int(one)) for one in sides))
    try:
        return launch_shape(fixed, contract.sizes[0])
    except ContractError as error:
        raise UsageError(error.message, hint=error.hint) from None


def _is_judged(value: object, text: str) -> bool:
    """Returns True if a constant equals the judged one; types such as `tl.float32` are compared by name."""
    expected = _value(text)
    if isinstance(expected, str) and not isinstance(value, str):
        return str(value).rpartition(".")[2] in (expected.rpartition(".")[2], _SHORT.get(expected.rpartition(".")[2]))
    return type(value) is not bool and value == expected if not isinstance(expected, bool) else value is expected


_SHORT = {"float16": "fp16", "float32": "fp32", "float64": "fp64", "bfloat16": "bf16"}
"""Triton's short names of its types."""


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
