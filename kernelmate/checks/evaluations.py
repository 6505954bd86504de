"""Protocol of references, and their evaluation one after another or in batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from kernelmate.checks.precision import Array, Arrays
from kernelmate.checks.reference_messages import Call
from kernelmate.records import Size

Expected = dict[str, Array]


class Reference(Protocol):
    """A source of expected outputs: the user's function or expression, or a kernel."""

    def __call__(self, arrays: Arrays, size: Size, working: np.dtype[Any] | None = None) -> Expected:
        """Computes every out and inout array for these inputs, floats in float64.

        Args:
            arrays: inputs by argument, original or perturbed; NumPy arrays, or CuPy arrays on a GPU.
            size: their size.
            working: the floating dtype to compute in; None means float64. A reference kernel ignores it.

        Raises:
            ReferenceFailed: the reference raised an exception, or its result does not match the contract.
        """
        ...


@runtime_checkable
class Batching(Protocol):
    """A reference that evaluates several calls at once."""

    def seconds(self, size: Size) -> float:
        """Returns the seconds of a recent call at this size; infinite without one."""
        ...

    def several(self, calls: Sequence[Call], size: Size) -> list[Expected]:
        """Evaluates several calls, each as `Reference.__call__`."""
        ...


BATCH_BYTES = 8 << 20
"""Bytes of arrays up to which calls are batched."""
BATCH_S = 0.1
"""Approximate duration in seconds of one batch, so that progress is reported."""


@dataclass(frozen=True, slots=True)
class ObservedReference:
    """A reference whose calls are reported as progress."""

    reference: Reference
    tell: Callable[[], None]

    def __call__(self, arrays: Arrays, size: Size, working: np.dtype[Any] | None = None) -> Expected:
        """Implements `Reference.__call__`."""
        self.tell()
        return self.reference(arrays, size, working)

    def seconds(self, size: Size) -> float:
        """Implements `Batching.seconds`; infinity if the reference cannot estimate."""
        return self.reference.seconds(size) if isinstance(self.reference, Batching) else math.inf

    def several(self, calls: Sequence[Call], size: Size) -> list[Expected]:
        """Implements `Batching.several`."""
        self.tell()
        if isinstance(self.reference, Batching):
            return self.reference.several(calls, size)
        return [self.reference(arrays, size, working) for arrays, working in calls]


def evaluations(reference: Reference, calls: Iterable[Call], size: Size) -> Iterator[Expected]:
    """Yields the reference's results of calls, in order; small calls are batched if the reference supports it.

    Raises:
        ReferenceFailed: as `Reference.__call__`.
    """
    if not isinstance(reference, Batching):
        for arrays, working in calls:
            yield reference(arrays, size, working)
        return
    waiting: list[Call] = []
    held = 0
    for call in calls:
        waiting.append(call)
        held += sum(array.nbytes for array in call[0].values())
        if held > BATCH_BYTES or len(waiting) * reference.seconds(size) > BATCH_S:
            yield from reference.several(waiting, size)
            waiting, held = [], 0
    if waiting:
        yield from reference.several(waiting, size)
