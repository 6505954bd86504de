"""Runs of pipelines: the kernels of their stages loaded, their temporaries, and each stage as a launch or a library's step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.backends.base import ArrayArgument, Backend, LibraryCall, Module, ScalarArgument, StageLaunch
from kernelmate.backends.pipeline import PipelineModule
from kernelmate.checks.evaluations import Reference
from kernelmate.checks.precision import Array, Arrays, is_float, on_host
from kernelmate.checks.reference import checked_expression, python_reference
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Argument, Size, Stage, Target, Version
from kernelmate.source import launch_shape, numpy_dtype, scalar_values
from kernelmate.source.launch import argument_shape

LaunchArgument = ArrayArgument | ScalarArgument

Observe = Callable[[Mapping[str, Array], Mapping[str, Array]], None]
"""Function that is given a stage's arrays before and after it, by parameter."""

Fill = Callable[[tuple[int, ...], np.dtype[Any]], Array]
"""Function that returns a poisoned array of a shape and a type."""


def loaded(backend: Backend, version: Version, target: Target) -> Module:
    """Returns a loaded version: a kernel, or all kernels of a pipeline as one module.

    Raises:
        UnsupportedInstruction: the backend cannot run one of them.
    """
    if not version.contract.stages:
        return backend.load(version.compiled, target)
    kernels = iter(version.stages)
    modules = [None if one.library else backend.load(next(kernels).compiled, target) for one in version.contract.stages]
    return PipelineModule(modules, repeatable=backend.name == "emulator")


class StageLauncher:
    """Turns one run of a pipeline into the launches of its stages.

    Args:
        version: the pipeline; a version without stages has no launches.
        directory: the folder of the contract's files.

    Raises:
        ReferenceFailed: an expression uses a name that it may not.
    """

    def __init__(self, version: Version, directory: Path) -> None:
        self.stages: Sequence[Stage] = version.contract.stages
        self._contract = version.contract
        for one in self.stages:
            if one.library:
                checked_expression(one.contract)  # a GPU's process evaluates its text
        self._steps = [python_reference(one.contract, directory) if one.library else None for one in self.stages]

    def temporaries(self, size: Size, fill: Fill) -> dict[str, LaunchArgument]:
        """Returns the temporaries by name, poisoned anew or filled as the contract says."""
        found: dict[str, LaunchArgument] = {}
        for one in self._contract.temporaries:
            shape, dtype = argument_shape(one, size, self._contract.line), numpy_dtype(one.dtype)
            data = fill(shape, dtype) if one.distribution is None else _filled(one, shape, dtype, fill)
            found[one.name] = ArrayArgument(one.name, data, output=one.distribution is None, passed=False)
        return found

    def launches(
        self, size: Size, arguments: Mapping[str, LaunchArgument], observe: Callable[[int], Observe] | None
    ) -> tuple[StageLaunch, ...]:
        """Returns the stages of a run.

        Args:
            size: the size of the run.
            arguments: the run's arguments and temporaries by name.
            observe: gives what observes the stage of a number; None if nothing does.

        Raises:
            ContractError: a stage cannot be launched at this size.
        """
        found = []
        for number, stage in enumerate(self.stages):
            passed = _passed(stage, size, arguments)
            pairs = [
                (a, source) for a, source in zip(stage.contract.args, stage.sources, strict=True) if a.shape is not None
            ]
            step = self._steps[number]
            found.append(
                StageLaunch(
                    stage.name,
                    None if stage.library else launch_shape(stage.contract, size),
                    passed,
                    frozenset(str(source) for a, source in pairs if a.direction in ("in", "inout")),
                    frozenset(str(source) for a, source in pairs if a.direction in ("out", "inout")),
                    None if step is None else _library_call(step, stage, size, passed),
                    stage.contract.reference if stage.library else None,
                    dict(size) if stage.library else {},
                    None if observe is None else observe(number),
                )
            )
        return tuple(found)


def _passed(
    stage: Stage, size: Size, arguments: Mapping[str, LaunchArgument]
) -> tuple[tuple[str, str] | ScalarArgument, ...]:
    """Returns the value that a stage passes for each parameter of its kernel."""
    scalars = scalar_values(stage.contract, size)
    found: list[tuple[str, str] | ScalarArgument] = []
    for argument, source in zip(stage.contract.args, stage.sources, strict=True):
        if argument.shape is not None:
            found.append((argument.name, str(source)))
            continue
        outer = None if source is None else arguments.get(source)
        value: Any = outer.value if isinstance(outer, ScalarArgument) else scalars[argument.name]
        rounded: Any = np.asarray(value).astype(numpy_dtype(argument.dtype))[()]
        found.append(ScalarArgument(argument.name, rounded))
    return tuple(found)


def _filled(argument: Argument, shape: tuple[int, ...], dtype: np.dtype[Any], fill: Fill) -> Array:
    """Returns a temporary that the host fills before each run, in the memory in which `fill` makes arrays."""
    data = fill(shape, dtype).copy()
    data[...] = 1 if argument.distribution == "ones" else 0
    return data


def _library_call(
    step: Reference, stage: Stage, size: Size, passed: Sequence[tuple[str, str] | ScalarArgument]
) -> LibraryCall:
    """Returns a step of a library as a call on arrays.

    It computes as a library does: in float32 at least, and its result is rounded once, to the array's type.
    """
    scalars = {one.name: np.asarray(one.value) for one in passed if isinstance(one, ScalarArgument)}
    double = any(numpy_dtype(a.dtype) == np.float64 for a in stage.contract.args)
    floating = any(is_float(numpy_dtype(a.dtype)) for a in stage.contract.args)
    working = np.dtype(np.float32) if floating and not double else None
    types = {a.name: numpy_dtype(a.dtype) for a in stage.contract.args}

    def call(given: Mapping[str, Array]) -> Arrays:
        host = not any(hasattr(array, "get") for array in given.values())
        try:
            expected = step({**given, **scalars}, size, working)
        except ReferenceFailed as error:
            raise ReferenceFailed(
                f"The stage {stage.name} = {stage.contract.reference!r} fails: {error.message}",
                file=error.file, line=error.line, column=error.column, hint=error.hint,
            ) from None  # fmt: skip
        with np.errstate(all="ignore"):
            found = {name: array.astype(types[name]) for name, array in expected.items()}
        return {name: on_host(array) if host else array for name, array in found.items()}

    return call
