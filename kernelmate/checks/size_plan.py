"""Plan of a verdict's sizes, with the launches at each, and the memory needed to judge a size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kernelmate.backends.base import EmulationTooLarge
from kernelmate.backends.processes import available_memory
from kernelmate.checks.alignment import Shift, every_shift, shifts_of
from kernelmate.checks.case_launches import CHEAP_ELEMENTS, elements_at
from kernelmate.checks.case_records import Origin
from kernelmate.checks.condition_sizes import SizeLookup, directed_sizes
from kernelmate.checks.sizes import covering_sizes, key_of, own_sizes
from kernelmate.checks.styles import InputStyle
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes, numpy_dtype
from kernelmate.source.conditions import Condition

TWICE = 3
"""Number of generated sizes with a second set of ordinary inputs, which costs evaluations of the reference."""

MOST_MOVED = 3
"""Maximum number of sizes at which the shifts of base pointers are tried."""


class PlannedSize(NamedTuple):
    """A size of a verdict.

    Attributes:
        once: True for one ordinary launch instead of two.
        styled: True adds a launch with unusual inputs.
        shifts: base pointer shifts, each in a launch of its own.
        styles: further styles of inputs, each in a launch of its own.
        selected: True for a size that a condition of the version's code selects; scalars have other values there as
            well, since the condition may select wrong code for them.
    """

    size: Size
    origin: Origin
    once: bool = False
    styled: bool = True
    shifts: tuple[Shift, ...] = ()
    styles: tuple[InputStyle, ...] = ()
    selected: bool = False


def tried_sizes(
    contract: Contract,
    listed: Sequence[Size],
    seed: int,
    conditions: Sequence[Condition] = (),
    *,
    aligned: bool = False,
) -> tuple[list[PlannedSize], tuple[str, ...]]:
    """Returns the listed sizes, generated sizes, and those that exercise conditions of a candidate's text.

    Args:
        contract: the baseline's contract.
        listed: sizes that must be right.
        seed: the seed of randomly drawn sizes.
        conditions: conditions of the candidate's text that its baseline lacks.
        aligned: True if the candidate reads low bits of addresses.

    Returns:
        The sizes in the order in which they are tried, and a sentence for each condition whose sizes are too large.
    """
    own = own_sizes(contract, tuple(listed))
    covering = covering_sizes(contract, (*listed, *own), seed)
    shifts = shifts_of(contract)
    found = [PlannedSize(size, "contract") for size in listed] + [
        PlannedSize(size, "own", once=place >= TWICE) for place, size in enumerate(own)
    ]
    found += [PlannedSize(size, "own", once=True, styled=False) for size in covering.sizes]
    beyond: tuple[str, ...] = ()
    if conditions:
        directed = directed_sizes(contract, [one.size for one in found if _cheap(contract, one.size)], conditions)
        sizes = sorted(directed.sizes, key=lambda size: elements_at(contract, size))
        found, beyond = found + selected_sizes(sizes), directed.beyond
    cheap = [one.size for one in found if _cheap(contract, one.size)]
    first, *others = [key_of(size) for size in _moved_at(contract, cheap, covering.round, conditions)] or [()]
    moved = {first: every_shift(contract) if aligned else shifts, **dict.fromkeys(others, shifts)}
    return [one._replace(shifts=moved.get(key_of(one.size), ())) for one in found], beyond


def selected_sizes(sizes: Iterable[Size]) -> list[PlannedSize]:
    """Returns sizes that a condition of the version's code selects, each with one set of ordinary inputs."""
    return [PlannedSize(size, "own", once=True, styled=False, selected=True) for size in sizes]


def _moved_at(
    contract: Contract, cheap: Sequence[Size], rounded: Size | None, conditions: Sequence[Condition]
) -> list[Size]:
    """Returns sizes at which base pointers are moved: a round one, and others that meet further conditions."""
    chosen = [*([] if rounded is None else [rounded]), *cheap][:1]
    lookups = SizeLookup(contract, thread=False)
    for condition in conditions:
        if len(chosen) < MOST_MOVED and all(condition.holds(lookups.at(size)) is False for size in chosen):
            chosen += [size for size in cheap if condition.holds(lookups.at(size)) is not False][:1]
    return chosen


def _cheap(contract: Contract, size: Size) -> bool:
    return elements_at(contract, size) <= CHEAP_ELEMENTS


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
    """Checks that the available memory suffices for judging a size.

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
