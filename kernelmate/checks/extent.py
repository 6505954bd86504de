"""Memory needed to judge a size: expected outputs, tolerances and results take many times the kernel's own arrays."""

from __future__ import annotations

import math

from kernelmate.backends.base import EmulationTooLarge
from kernelmate.backends.processes import available_memory
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes, numpy_dtype

_WIDE = 8
"""Bytes of a float64 element, the type of all comparisons."""
_ANSWERS = 2
"""Sets of inputs whose expected outputs are held at once."""
_OF_AN_ANSWER = 3
"""Arrays per expected output: values, tolerance, and the error that counts as lost precision."""
_PASSING = 5
"""Temporary float64 arrays held while one output's tolerance is derived or the output is compared."""
_LAUNCHES = 3
"""Launches whose arrays are held at once."""


def needed_bytes(contract: Contract, size: Size) -> int:
    """Returns the approximate peak memory in bytes of judging a size."""
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
    """Check that the available memory suffices for judging a size.

    Raises:
        EmulationTooLarge: it needs more memory than is available.
    """
    needed, left = needed_bytes(contract, size), available_memory()
    if left is not None and needed > left.size:
        raise EmulationTooLarge(
            f"judging needs about {needed >> 20} MiB of memory, and {left.size >> 20} MiB {left.limit}.",
            left.size,
            left.advice,
        )
