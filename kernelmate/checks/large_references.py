"""Evaluation of references at large sizes, on the GPU that holds the inputs or on the host, and of kernels as references."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.backends.base import Backend, UnsupportedInstruction
from kernelmate.checks.answers import forget_device
from kernelmate.checks.canonical import canonical
from kernelmate.checks.case_launches import Bench, LaunchOutcome, PlannedLaunch, errors_of, trusted_backend
from kernelmate.checks.evaluations import Expected, Reference
from kernelmate.checks.findings import placed
from kernelmate.checks.precision import Arrays, module_of, on_device, on_host, wide
from kernelmate.checks.reference_facts import ReferenceFacts
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Contract, JudgeTask, Size
from kernelmate.source import numpy_dtype

LONGEST_REFERENCE_S = 3.0
"""Maximum seconds of a reference's evaluation on the host at a large size; above it, the baseline is compared with."""


class ReferenceUnavailable(Exception):
    """The reference's expected outputs are unavailable at a size; the message gives the reason."""


def on_host_again(reference: Reference, arrays: Arrays, size: Size, working: np.dtype[Any] | None = None) -> Expected:
    """Evaluates the reference with NumPy for arrays on a GPU; results are copied to the GPU."""
    module = module_of(next((array for array in arrays.values() if on_device(array)), None))
    expected = reference({name: on_host(array) for name, array in arrays.items()}, size, working)
    return {name: module.asarray(array) for name, array in expected.items()}


def on_device_or_host(
    reference: Reference, learnt: ReferenceFacts, elements: int, arrays: Arrays, size: Size,
    working: np.dtype[Any] | None = None,
) -> Expected:  # fmt: skip
    """Evaluates the reference on the GPU; with NumPy if that fails, for instance for lack of GPU memory.

    Raises:
        ReferenceUnavailable: NumPy would take too long.
    """
    try:
        return reference(arrays, size, working)
    except (ReferenceFailed, MemoryError):
        module = module_of(next(array for array in arrays.values() if on_device(array)))
        forget_device(module)
    refuse_long(learnt.seconds_at(elements))
    return on_host_again(reference, arrays, size, working)


def refuse_long(seconds: float) -> None:
    """Checks that an evaluation on the host does not take too long.

    Raises:
        ReferenceUnavailable: it takes more than `LONGEST_REFERENCE_S`.
    """
    if seconds > LONGEST_REFERENCE_S:
        raise ReferenceUnavailable(f"the reference would take about {seconds:.0f} s there")


def kernel_reference(contract: Contract, bench: Bench, shot: PlannedLaunch) -> Reference:
    """Returns a kernel as the reference: its outputs for inputs cast to their dtypes.

    Its arguments are matched by position, not by name.

    Raises:
        ReferenceFailed: its arguments do not match the contract's; or, when called, it does not run cleanly.
    """
    theirs = bench.version.contract.args
    if [a.dtype for a in theirs] != [a.dtype for a in contract.args]:
        raise ReferenceFailed(
            f"The reference kernel {bench.version.contract.kernel} takes other arguments than {contract.kernel}.",
            file=bench.version.unit.path,
            line=contract.line,
            hint="Name a kernel with the same arguments in the same order.",
        )
    names = {mine.name: other.name for mine, other in zip(contract.args, theirs, strict=True)}

    def reference(arrays: Arrays, size: Size, working: np.dtype[Any] | None = None) -> Expected:  # noqa: ARG001
        with np.errstate(all="ignore"):
            given = {
                names[a.name]: arrays[a.name].astype(numpy_dtype(a.dtype)) for a in contract.args if a.name in arrays
            }
        outcome = bench.run(size, PlannedLaunch(shot.inputs, shot.style, 0, 0), given)
        _refuse_failed(bench, outcome)
        found = {
            a.name: wide(outcome.result.arrays[names[a.name]]) for a in contract.args if a.direction in ("out", "inout")
        }
        return canonical(contract, size, found, arrays)

    return reference


def _refuse_failed(bench: Bench, outcome: LaunchOutcome) -> None:
    errors = errors_of(outcome.result.findings)
    if not errors:
        return
    line, column = bench.version.unit.locate(errors[0].line or 1, errors[0].column)
    raise ReferenceFailed(
        f"The reference kernel {bench.version.contract.kernel} does not run cleanly: {errors[0].message} "
        f"({errors[0].code}).",
        file=bench.version.unit.path,
        line=line,
        column=column,
        hint="Name another reference.",
    )


def reference_bench(backend: Backend, task: JudgeTask) -> Bench | None:
    """Returns the loaded kernel that a contract names as reference; None if it names none.

    Raises:
        ReferenceFailed: the backend cannot run it.
    """
    version = task.reference_version
    if version is None:
        return None
    try:
        return Bench(trusted_backend(backend), task, version)
    except UnsupportedInstruction as refusal:
        finding = placed(refusal.finding, version.unit)
        raise ReferenceFailed(
            f"The reference kernel {version.contract.kernel} cannot run here: {finding.message}",
            file=finding.file,
            line=finding.line,
            column=finding.column,
            hint="Name another reference.",
        ) from None
