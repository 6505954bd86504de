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
"""Beside a GPU, a large size whose reference would take longer on the host is held against the baseline."""


class ReferenceUnavailable(Exception):
    """The reference's answer cannot be had at a size; the message says why."""


def on_host_again(reference: Reference, arrays: Arrays, size: Size, working: np.dtype[Any] | None = None) -> Expected:
    """The reference's answer by NumPy, for arrays that lie elsewhere."""
    module = module_of(next((array for array in arrays.values() if on_device(array)), None))
    expected = reference({name: on_host(array) for name, array in arrays.items()}, size, working)
    return {name: module.asarray(array) for name, array in expected.items()}


def on_device_or_host(
    reference: Reference, learnt: ReferenceFacts, elements: int, arrays: Arrays, size: Size,
    working: np.dtype[Any] | None = None,
) -> Expected:  # fmt: skip
    """The reference's answer by the GPU; by NumPy where that has too little memory for it.

    Raises:
        NotHad: NumPy would take too long.
    """
    try:
        return reference(arrays, size, working)
    except (ReferenceFailed, MemoryError):
        module = module_of(next(array for array in arrays.values() if on_device(array)))
        forget_device(module)
    refuse_long(learnt.seconds_at(elements))
    return on_host_again(reference, arrays, size, working)


def refuse_long(seconds: float) -> None:
    """Refuse an evaluation on the host that would take too long.

    Raises:
        NotHad: it would.
    """
    if seconds > LONGEST_REFERENCE_S:
        raise ReferenceUnavailable(f"the reference would take about {seconds:.0f} s there")
