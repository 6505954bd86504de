"""Misaligned base pointers: byte offsets of arrays from the 256-byte alignment of allocations, singly and together."""

from __future__ import annotations

from kernelmate.records import Contract
from kernelmate.source import numpy_dtype

WIDEST = 16
"""Bytes of the widest access of a thread, the strictest alignment that any instruction requires."""

MOST_SHIFTS = 9
"""Maximum number of shifts per verdict, not counting the shift of all arrays by one element at each listed size."""

MOST_OF_EVERY = 64
"""Maximum number of shifts per verdict on a kernel that reads low bits of addresses; used only for small launches."""

Shift = tuple[tuple[str, int], ...]
"""The byte offset of each shifted array, by name."""


def shifted_together(contract: Contract, steps: int = 1) -> Shift:
    """Returns the shift of all arrays by a number of elements each, or of multiples of a promised alignment."""
    return tuple((name, steps * unit) for name, unit in _units(contract).items())


def shifts_of(contract: Contract) -> tuple[Shift, ...]:
    """Returns at most `MOST_SHIFTS` shifts that set each low address bit of each array alone, as far as they suffice.

    Further shifts move all arrays by different offsets, or one array by 12 bytes.
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
    """Returns every offset within 16 bytes for each array by itself and for all together, at most `MOST_OF_EVERY`.

    Used for kernels that read low bits of addresses, whose behaviour at one offset says nothing about another.
    """
    movable = {name: unit for name, unit in _units(contract).items() if unit < WIDEST}
    alone = [((name, step),) for step in range(1, WIDEST) for name, unit in movable.items() if step % unit == 0]
    most = max((WIDEST // unit for unit in movable.values()), default=0)
    some = [shifted_together(contract, steps) for steps in range(1, most)] if len(movable) > 1 else []
    return tuple(dict.fromkeys([*shifts_of(contract), *alone, *some]))[:MOST_OF_EVERY]


def _thinned(alone: list[Shift], names: list[str]) -> list[Shift]:
    """Selects shifts up to the maximum, highest bit of each array first, since narrow alignment checks miss it."""
    highest = {name: max(bytes_ for ((one, bytes_),) in alone if one == name) for name in names}
    first = [shift for shift in alone if highest[shift[0][0]] == shift[0][1]]
    return [*first, *(shift for shift in alone if shift not in first)][: MOST_SHIFTS - 1]


def shift_text(shift: Shift) -> str:
    """Describes a shift: `x moved by 8 bytes`; empty for none."""
    moved: dict[int, list[str]] = {}
    for name, count in shift:
        moved.setdefault(count, []).append(name)
    parts = [f"{' and '.join(names)} moved by {count} byte{'s' * (count != 1)}" for count, names in moved.items()]
    return ", ".join(parts)


def _units(contract: Contract) -> dict[str, int]:
    """Returns for each array the smallest offset, in bytes, by which it may be moved."""
    arrays = [a for a in contract.args if a.shape is not None]
    return {a.name: max(a.align or 0, numpy_dtype(a.dtype).itemsize) for a in arrays}
