"""Sizes beyond all that are listed: where tiles of registers, rows in shared memory and grids of a fixed length end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from kernelmate.checks.sizes import KEPT, MOST_THREADS, key_of, threads_at, usable
from kernelmate.checks.trials import elements_of
from kernelmate.errors import ContractError
from kernelmate.records import Contract, Size, Version
from kernelmate.source import argument_shapes
from kernelmate.source.tokens import Token, lex

BEYOND = 4
"""A name is made so many times as large as the largest that is listed: capacities are seldom a larger multiple of it."""

LEAST_BEYOND = 4096
"""A name of more than a few is made at least this large: what holds rows of 1024 or 2048 elements is full there."""

ROUNDS = (1, 3, 4, 16, 64)
"""What is added, so that a `require` is met: odd numbers first, which no whole number of tiles takes."""

FEW = 3
"""What the other names are cut to."""

LEAST_COMPARED, MOST_COMPARED = 257, 1 << 19
"""Numbers between these are of interest in the code: smaller ones are tried anyway."""

MOST_AROUND = 4
MOST_ELEMENTS_AROUND = 1 << 20
MOST_THREADS_AROUND = 1 << 19
"""Sizes around numbers of the code, and what each may take: a part of a second in the emulator."""

_COMPARED = re.compile(r"setp\.\w+\.[su](?:16|32|64)\s+%\w+(?:\|%\w+)?,\s*%\w+,\s*(\d+);")
_NARROW = frozenset({"short", "ushort", "int16_t", "uint16_t"})
_WHOLE = re.compile(r"0[xX][\da-fA-F']+|0[bB][01']+|[\d']+")


def further_sizes(
    contract: Contract, listed: Sequence[Size], tried: Sequence[Size], version: Version, baseline: Version
) -> tuple[Size, ...]:
    """Sizes beyond the tried ones that a version's text, launch or code gives a reason for; none for most versions.

    Args:
        contract: says which sizes are allowed.
        listed: sizes that must be right.
        tried: the sizes that are tried anyway.
        version: under judgement.
        baseline: what it was made from.
    """
    mine, theirs = _tokens(version), _tokens(baseline)
    found: list[Size] = []
    if _numbers(mine) - _numbers(theirs) or _loops(mine) < _loops(theirs):
        found += capacity_sizes(contract, listed, tried)
    numbers = compared_numbers(version.compiled.ptx) - compared_numbers(baseline.compiled.ptx)
    if _narrow(mine) - _narrow(theirs):
        numbers |= {1 << 16}
    return (*found, *_around(contract, listed, (*tried, *found), sorted(numbers)))


def compared_numbers(ptx: str) -> set[int]:
    """Numbers that code compares whole numbers with, whatever macros, templates or functions they came from."""
    return {number for number in map(int, _COMPARED.findall(ptx)) if LEAST_COMPARED < number <= MOST_COMPARED}


def _around(
    contract: Contract, listed: Sequence[Size], tried: Sequence[Size], numbers: Sequence[int]
) -> Iterator[Size]:
    """Sizes at and just beyond numbers, for each name that is not so large anywhere."""
    threads = max(MOST_THREADS_AROUND, min(threads_at(contract, size) for size in listed))
    left = MOST_AROUND
    base = min(listed, key=lambda size: _elements(contract, size))
    for number in reversed(numbers):
        for name in listed[0]:
            if left > 0 and max(size[name] for size in tried) <= number:
                for value in (number + 1, number):
                    size = {**{other: min(most, FEW) for other, most in base.items()}, name: value}
                    if usable(contract, size, threads, MOST_ELEMENTS_AROUND):
                        left -= 1
                        yield size


def capacity_sizes(contract: Contract, listed: Sequence[Size], tried: Sequence[Size]) -> tuple[Size, ...]:
    """For each name a size at which it is several times as large as listed, and the others are small.

    A kernel that leaves out what its tiles, blocks or shared memory do not hold is wrong at every size beyond, so one far
    beyond stands for them all. Names that cannot grow so far, for threads or elements, grow as far as they can.

    Args:
        contract: says which sizes are allowed.
        listed: sizes that must be right.
        tried: the sizes that are tried anyway.
    """
    threads = max(MOST_THREADS, min(threads_at(contract, size) for size in listed))
    bases = sorted(listed, key=lambda size: _elements(contract, size))
    found: list[Size] = []
    for name in listed[0]:
        most = max(size[name] for size in (*tried, *found))
        size = next((one for one in _grown(name, bases, most) if usable(contract, one, threads)), None)
        if size is not None and key_of(size) not in {key_of(one) for one in found}:
            found.append(size)
    return tuple(found)


def _grown(name: str, bases: Sequence[Size], most: int) -> Iterator[Size]:
    """Listed sizes with a name made larger than any that is tried, the largest first."""
    top = max(size[name] for size in bases)
    value = max(BEYOND * top, LEAST_BEYOND if top > KEPT else 0)
    while value > most:
        for more in ROUNDS:
            rounded = value + more if more % 2 else -(-value // more) * more + more
            yield from ({**base, name: rounded} for base in bases[:1])
            yield {**{other: min(small, FEW) for other, small in bases[0].items()}, name: rounded}
            yield {**dict.fromkeys(bases[0], 1), name: rounded}
        value //= 2


def _elements(contract: Contract, size: Size) -> int:
    try:
        return elements_of(argument_shapes(contract, size).values())
    except ContractError:
        return 0


def _tokens(version: Version) -> list[Token]:
    contract = version.contract
    texts = (version.unit.text, *contract.grid, *contract.block, contract.shared)
    return [token for text in texts for token in lex(text).tokens]


def _numbers(tokens: Sequence[Token]) -> Counter[str]:
    """Whole numbers above 1, as written."""
    found = (token.text.rstrip("uUlLzZ") for token in tokens if token.kind == "number")
    return Counter(word for word in found if _WHOLE.fullmatch(word) and word not in ("0", "1"))


def _loops(tokens: Sequence[Token]) -> int:
    return sum(token.text in ("for", "while") for token in tokens)


def _narrow(tokens: Sequence[Token]) -> Counter[str]:
    """Types of 16 bits: sizes, positions and counts may be computed in them."""
    return Counter(token.text for token in tokens if token.text in _NARROW)
