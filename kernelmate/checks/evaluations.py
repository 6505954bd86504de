"""The protocol of references, and calls of them: one after another, or several small ones at once."""

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
    """A source of the right outputs."""

    def __call__(self, arrays: Arrays, size: Size, working: np.dtype[Any] | None = None) -> Expected:
        """Every out and inout array for these inputs, floats in float64.

        Args:
            arrays: inputs by argument, as the kernel gets them or moved a little; NumPy's, or CuPy's on a GPU.
            size: the size they belong to.
            working: the floating dtype to compute in; None is float64. A kernel computes as it does.

        Raises:
            ReferenceFailed: it raised, or gave something else than the contract says.
        """
        ...


@runtime_checkable
class Batching(Protocol):
    """A reference that takes several calls at once."""

    def seconds(self, size: Size) -> float:
        """Seconds of one of the last calls at this size; infinite if there was none."""
        ...

    def several(self, calls: Sequence[Call], size: Size) -> list[Expected]:
        """As `Reference.__call__` for each of the calls."""
        ...


BATCH_BYTES = 8 << 20
"""Arrays of calls that are made together."""
BATCH_S = 0.1
"""About as long calls that are made together may take, so that progress is told."""


@dataclass(frozen=True, slots=True)
class ObservedReference:
    """A reference whose calls are told as progress."""

    reference: Reference
    tell: Callable[[], None]

    def __call__(self, arrays: Arrays, size: Size, working: np.dtype[Any] | None = None) -> Expected:
        """As `Reference.__call__`."""
        self.tell()
        return self.reference(arrays, size, working)

    def seconds(self, size: Size) -> float:
        """As `Batching.seconds`."""
        return self.reference.seconds(size) if isinstance(self.reference, Batching) else math.inf

    def several(self, calls: Sequence[Call], size: Size) -> list[Expected]:
        """As `Batching.several`."""
        self.tell()
        if isinstance(self.reference, Batching):
            return self.reference.several(calls, size)
        return [self.reference(arrays, size, working) for arrays, working in calls]


def evaluations(reference: Reference, calls: Iterable[Call], size: Size) -> Iterator[Expected]:
    """The reference's answers to calls, in their order; small ones together where the reference takes several at once.

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
