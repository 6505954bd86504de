"""Sizes for kernels whose integer arrays hold lengths, offsets or sorted keys: long lists, and deep searches.

The lengths of such lists follow from contents, so that a size just beyond a constant of the code does not suffice.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence

from kernelmate.checks.sizes import MOST_PROBED_ELEMENTS, MOST_REACHED_THREADS, USUAL, usable
from kernelmate.records import Contract, Size
from kernelmate.source import numpy_dtype

LEAST_LENGTH, MOST_LONG = 32, 3
"""Exclusive minimum of constants that may limit lengths, and the maximum number of sizes for them."""

LONGER = 2
"""Factor by which a name exceeds such a constant: half of the lengths drawn below it exceed the constant."""

SEVERAL = 3
"""Value of the other names, so that there are several lengths."""

SEARCHED = range(5, 17)
"""Constants that may limit the steps of a search, which halves what is left in each."""


def has_lists(contract: Contract) -> bool:
    """Returns True if integer inputs are made by an `inputs` function or ascend, as keys that are searched do."""
    return contract.inputs is not None or any("ascending" in (a.distribution or "") for a in contract.args)


def long_sizes(
    contract: Contract, listed: Sequence[Size], tried: Sequence[Size], numbers: Collection[int]
) -> Iterator[Size]:
    """Yields sizes at which some of the lengths that an `inputs` function draws exceed the largest new constants.

    Lengths below a size are half as long on average, and some share the elements of an array.

    Args:
        contract: defines the allowed sizes.
        listed: the contract's sizes.
        tried: sizes that are tried anyway.
        numbers: constants that limit integers or arrays in the version's code alone.
    """
    left = MOST_LONG
    for number, name in itertools.product(sorted(numbers, reverse=True), _counting(contract, listed)):
        value = LONGER * number + 1
        if left and max(size[name] for size in tried) < value:
            sizes = ({**others, name: value} for others in (_few(listed, SEVERAL), _few(listed, 1)))
            found = [size for size in sizes if usable(contract, size, MOST_REACHED_THREADS, MOST_PROBED_ELEMENTS)][:1]
            left -= len(found)
            yield from found


def searched_sizes(
    contract: Contract, listed: Sequence[Size], tried: Sequence[Size], written: Collection[str]
) -> Iterator[Size]:
    """Yields for each name a size at which a search by halving takes more steps than a new constant allows.

    Args:
        contract: defines the allowed sizes.
        listed: the contract's sizes.
        tried: sizes that are tried anyway.
        written: integers that only the version's text contains; the largest of `SEARCHED` counts.
    """
    limits = [int(word) for word in written if word.isdecimal() and int(word) in SEARCHED]
    value = 2 << max(limits, default=0)
    for name in _counting(contract, listed):
        size = {**_few(listed, USUAL), name: value}
        if limits and max(one[name] for one in tried) < value:
            yield from [size] * usable(contract, size, MOST_REACHED_THREADS, MOST_PROBED_ELEMENTS)


def _few(listed: Sequence[Size], most: int) -> Size:
    return {name: min(most, max(size[name] for size in listed)) for name in listed[0]}


def _counting(contract: Contract, listed: Sequence[Size]) -> list[str]:
    """Returns the names in the shapes of integer inputs."""
    sides = " ".join(
        str(side)
        for a in contract.args
        if a.direction in ("in", "inout") and numpy_dtype(a.dtype).kind in "iu"
        for side in a.shape or ()
    )
    return [name for name in listed[0] if re.search(rf"\b{name}\b", sides)]
