"""Memory needed to judge a size: expected outputs, tolerances and results take many times what the kernel does."""

from __future__ import annotations

import math

from kernelmate.backends.available_memory import room
from kernelmate.backends.base import EmulationTooLarge
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes, numpy_dtype

_WIDE = 8
"""Bytes of an element in float64, in which everything is compared."""
_ANSWERS = 2
"""Sets of inputs whose answers are held at once."""
_OF_AN_ANSWER = 3
"""Arrays of an answer: what is wanted, which error passes, and which one lost precision explains."""
_PASSING = 5
"""Arrays of float64 that making or comparing one answer takes for a moment."""
_LAUNCHES = 3
"""Launches whose arrays are held at once."""


def needed_bytes(contract: Contract, size: Size) -> int:
    """Bytes that judging a size takes at its peak, about."""
    shapes = argument_shapes(contract, size)
    held = passing = 0
    for argument in contract.args:
        if argument.name not in shapes:
            continue
        elements = math.prod(shapes[argument.name])
        own = numpy_dtype(argument.dtype).itemsize
        held += _LAUNCHES * elements * own
        passing = max(passing, _PASSING * _WIDE * elements)
        if argument.direction != "in":
            held += elements * (_LAUNCHES * own + _ANSWERS * _OF_AN_ANSWER * _WIDE)
    return held + passing


def check_memory(contract: Contract, size: Size) -> None:
    """Refuse a size that there is no memory to judge.

    Raises:
        EmulationTooLarge: it needs more than can be had.
    """
    needed, left = needed_bytes(contract, size), room()
    if left is not None and needed > left.size:
        raise EmulationTooLarge(
            f"judging takes about {needed >> 20} MiB of memory, and {left.size >> 20} MiB {left.limit}.",
            left.size,
            left.advice,
        )
