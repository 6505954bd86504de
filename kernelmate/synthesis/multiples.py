"""Sizes that are multiples of others by a contract's `require`: `cols == 2 * half`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kernelmate.records import Size

Multiple = tuple[str, int, str]
"""A size, a factor, and the size that it is a multiple of."""


def multiple_text(multiple: Multiple) -> str:
    """Returns the condition of a contract."""
    name, factor, of = multiple
    return f"{name} == {factor} * {of}"


def multiples_of(require: Iterable[str]) -> tuple[Multiple, ...]:
    """Returns the conditions that have the form of `multiple_text`."""
    found = (re.fullmatch(r"(\w+) == (\d+) \* (\w+)", one.strip()) for one in require)
    return tuple((one[1], int(one[2]), one[3]) for one in found if one is not None)


def with_multiples(size: Size, multiples: Sequence[Multiple]) -> dict[str, int]:
    """Returns a size with each multiple set anew, and with a smaller size where the larger one is already set by another.

    Not all conditions may be met by it.
    """
    made, fixed = dict(size), set[str]()
    for name, factor, of in sorted(multiples, key=lambda one: -one[1]):
        if name in fixed:
            made[of] = made[name] // factor
        else:
            made[name] = factor * made[of]
        fixed |= {name, of}
    return made
