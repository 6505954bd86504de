"""Sizes that a contract's `require` makes multiples of others, as in `cols == 2 * half`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kernelmate.records import Size

Multiple = tuple[str, int, str]
"""A size, a factor, and the size that it is a multiple of."""


def multiple_text(multiple: Multiple) -> str:
    """Returns the condition as written in a contract."""
    name, factor, of = multiple
    return f"{name} == {factor} * {of}"


def multiples_of(require: Iterable[str]) -> tuple[Multiple, ...]:
    """Returns the conditions that have the form of `multiple_text`."""
    found = (re.fullmatch(r"(\w+) == (\d+) \* (\w+)", one.strip()) for one in require)
    return tuple((one[1], int(one[2]), one[3]) for one in found if one is not None)


def with_multiples(size: Size, multiples: Sequence[Multiple]) -> dict[str, int]:
    """Returns a size that satisfies the conditions, as far as possible.

    Each multiple is computed anew; if another condition has fixed it already, the size that it is a multiple of is
    computed instead.
    """
    made, fixed = dict(size), set[str]()
    for name, factor, of in sorted(multiples, key=lambda one: -one[1]):
        if name in fixed:
            made[of] = made[name] // factor
        else:
            made[name] = factor * made[of]
        fixed |= {name, of}
    return made
