"""Evaluation of references at large sizes: on the GPU that holds the inputs, else on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.checks.answers import forget_device
from kernelmate.checks.evaluations import Expected, Reference
from kernelmate.checks.laws import ReferenceFacts
from kernelmate.checks.precision import Arrays, module_of, on_device, on_host
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Size

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
