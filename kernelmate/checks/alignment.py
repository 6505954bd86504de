"""Displaced base pointers: off the 256 bytes that allocations start at, each array by itself and all together."""

from __future__ import annotations

from kernelmate.records import Contract
from kernelmate.source import numpy_dtype

WIDEST = 16
"""Bytes of the widest access of a thread: more than so much alignment no instruction wants."""

MOST_SHIFTS = 9
"""Shifts of a verdict, beside that of all arrays by one element at each listed size."""

MOST_OF_EVERY = 64
"""Shifts of a verdict on a kernel that looks at low bits of addresses: there only where a launch is small."""

Shift = tuple[tuple[str, int], ...]
"""Arrays by name, and the bytes by which each is moved."""


def together(contract: Contract, steps: int = 1) -> Shift:
    """All arrays moved by so many elements each, those with a promised alignment by so many multiples of it."""
    return tuple((name, steps * unit) for name, unit in _units(contract).items())


def shifts_of(contract: Contract) -> tuple[Shift, ...]:
    """The shifts to try, at most `MOST_SHIFTS`, so that each bit of each address is set by itself while the others are clear.

    Where arrays are many, several are moved at once, by different steps.
    """
    movable = {name: unit for name, unit in _units(contract).items() if unit < WIDEST}
    alone: list[Shift] = []
    for bit in range(WIDEST.bit_length() - 1):
        alone += [((name, 1 << bit),) for name, unit in movable.items() if (1 << bit) % unit == 0]
    if len(alone) > MOST_SHIFTS - 1:
        alone = _thinned(alone, list(movable))
    others = [((name, 3 * WIDEST // 4),) for name, unit in movable.items() if WIDEST // 4 % unit == 0]
    mixed = tuple(
        (name, unit * (1 + place % (WIDEST // unit - 1))) for place, (name, unit) in enumerate(movable.items())
    )
    found = [*alone, *([mixed] if len(movable) > 1 else []), *others]
    return tuple(dict.fromkeys(found))[:MOST_SHIFTS]


def every_shift(contract: Contract) -> tuple[Shift, ...]:
    """Every place within 16 bytes of each array by itself, and of all together, at most `MOST_OF_EVERY`.

    For kernels that look at low bits of addresses: what they do at one place says nothing of the next.
    """
    movable = {name: unit for name, unit in _units(contract).items() if unit < WIDEST}
    alone = [((name, step),) for step in range(1, WIDEST) for name, unit in movable.items() if step % unit == 0]
    most = max((WIDEST // unit for unit in movable.values()), default=0)
    some = [together(contract, steps) for steps in range(1, most)] if len(movable) > 1 else []
    return tuple(dict.fromkeys([*shifts_of(contract), *alone, *some]))[:MOST_OF_EVERY]


def _thinned(alone: list[Shift], names: list[str]) -> list[Shift]:
    """As many of the shifts as there is room for: each array by its highest bit first, which the narrowest checks miss."""
    highest = {name: max(bytes_ for ((one, bytes_),) in alone if one == name) for name in names}
    first = [shift for shift in alone if highest[shift[0][0]] == shift[0][1]]
    return [*first, *(shift for shift in alone if shift not in first)][: MOST_SHIFTS - 1]


def shift_text(shift: Shift) -> str:
    """A shift for people: `x moved by 8 bytes`; empty for none."""
    moved: dict[int, list[str]] = {}
    for name, count in shift:
        moved.setdefault(count, []).append(name)
    parts = [f"{' and '.join(names)} moved by {count} byte{'s' * (count != 1)}" for count, names in moved.items()]
    return ", ".join(parts)


def _units(contract: Contract) -> dict[str, int]:
    """By array, the bytes of the smallest step that it may be moved by."""
    arrays = [a for a in contract.args if a.shape is not None]
    return {a.name: max(a.align or 0, numpy_dtype(a.dtype).itemsize) for a in arrays}
