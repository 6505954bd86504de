"""Generated sizes around those of a contract, which expose kernels that were tried only at convenient sizes."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelmate.errors import ContractError
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes, launch_shape, numpy_dtype, scalar_values, size_allowed

ALONE = (1, 0, 127, 33, 257)
"""Values of one name while the others stay constant: 1, 0, and values one below or above a power of two."""

TOGETHER = (127, 31, 257, 13, 33, 1)
"""Values of all names: values one below or above a power of two, and primes (13, 31, 127, 257)."""

MOST_OWN_SIZES = 6
MOST_ELEMENTS = 1 << 16
"""Maximum number of elements over all arrays at a generated size."""

MOST_THREADS = 1 << 15
"""Maximum number of threads at a generated size, unless every listed size uses more."""

KEPT = 16
"""Minimum to which a name is reduced; smaller names are not reduced."""

PROBED = 4
"""Factor by which a name is enlarged to measure growth with it."""

MOST_PROBED_ELEMENTS = 1 << 20
"""Maximum number of elements over all arrays at an enlarged small size."""

MOST_REACHED_THREADS = 1 << 20
"""Maximum number of threads at a size whose integers reach a number."""

MODULI = (2, 4, 8, 16, 32)
"""Moduli whose residues matter to vector widths and warps."""

MOST_COVERING = 6
DRAWN_FROM = (38, 102)
DRAWS = 24
"""Number of covering sizes, the range of their names, and the draws from which each is the best."""

USUAL = 37
"""Value to which constant sizes are reduced: neither round nor large."""


def own_sizes(contract: Contract, listed: tuple[Size, ...]) -> tuple[Size, ...]:
    """Returns sizes around the listed ones that the contract allows and can launch, at most `MOST_OWN_SIZES`.

    Each moves all names at once, or one of them, to a probe value. Names linked by the contract's `require` change
    together or not at all, since excluded sizes are dropped, as are sizes with nothing to launch.
    """
    threads = max(MOST_THREADS, min(threads_at(contract, size) for size in listed))
    seen = {key_of(size) for size in listed}
    chosen: list[Size] = []
    for alternatives in _around(listed):
        if len(chosen) == MOST_OWN_SIZES:
            break
        size = next((one for one in alternatives if usable(contract, one, threads)), None)
        if size is not None and key_of(size) not in seen:
            seen.add(key_of(size))
            chosen.append({name: size[name] for name in listed[0]})
    return tuple(chosen)


@dataclass(frozen=True, slots=True)
class CoveringSizes:
    """Sizes with one ordinary launch each.

    Attributes:
        sizes: sizes that add residues in every dimension.
        round: a size with multiples of 16 only, as vector accesses need; base pointers are moved at this size.
    """

    sizes: tuple[Size, ...]
    round: Size | None


def covering_sizes(contract: Contract, tried: Sequence[Size], seed: int) -> CoveringSizes:
    """Returns a few sizes that together cover as many residues modulo 2, 4, 8, 16 and 32 in each dimension as possible.

    Args:
        contract: defines the allowed sizes.
        tried: sizes that are tried anyway.
        seed: the seed of the random sizes.
    """
    if not tried or not tried[0]:
        return CoveringSizes((), None)
    names, threads = list(tried[0]), max(MOST_THREADS, min(threads_at(contract, size) for size in tried))
    left = {residue: 1.0 / residue[1] for name in names for residue in _every_residue(name)}
    for size in tried:
        for residue in _residues(size):
            left.pop(residue, None)
    rounds = (one for one in _rounds(names, tried[0]) if usable(contract, one, threads))
    rounded: Size | None = next(rounds, None)
    seen = {key_of(size) for size in tried}
    chosen: list[Size] = [] if rounded is None or key_of(rounded) in seen else [rounded]
    draw = random.Random(seed)  # noqa: S311 -- sizes, no secrets
    fixed = {name for name in names if max(size[name] for size in tried) == min(size[name] for size in tried) <= 1}
    while len(chosen) < MOST_COVERING:
        for residue in _residues(chosen[-1]) if chosen else ():
            left.pop(residue, None)
        drawn = [{n: 1 if n in fixed else draw.randrange(*DRAWN_FROM) for n in names} for _ in range(DRAWS)]
        drawn = [{n: min(v, tried[0][n]) if tried[0][n] <= KEPT else v for n, v in one.items()} for one in drawn]
        drawn.sort(key=lambda one: -sum(left.get(residue, 0.0) for residue in _residues(one)))
        fits = (one for one in drawn if key_of(one) not in seen and usable(contract, one, threads))
        best: Size | None = next(fits, None)
        if best is None:
            break
        seen.add(key_of(best))
        chosen.append(best)
    return CoveringSizes(tuple(chosen), rounded)


def _rounds(names: Sequence[str], listed: Size) -> Iterator[Size]:
    """Yields sizes with multiples of 16, different for each name if possible."""
    for first, step in ((48, 16), (32, 16), (16, 16), (16, 0)):
        size = {name: first + step * place for place, name in enumerate(names)}
        yield size
        yield {name: min(value, listed[name]) if listed[name] <= KEPT else value for name, value in size.items()}


def _every_residue(name: str) -> Iterator[tuple[str, int, int]]:
    for modulus in MODULI:
        yield from ((name, modulus, rest) for rest in range(modulus))


def _residues(size: Size) -> Iterator[tuple[str, int, int]]:
    """Yields name, modulus and residue."""
    for name, value in size.items():
        yield from ((name, modulus, value % modulus) for modulus in MODULI if value)


def _around(listed: tuple[Size, ...]) -> Iterator[list[Size]]:
    """Yields lists of alternative sizes, in order of priority; the first usable size of each list is taken."""
    names = sorted(listed[0])
    if not names:
        return
    bases: list[Size] = [{name: min(size[name], USUAL) for name in names} for size in listed]
    bases += listed
    for turn in range(len(TOGETHER)):
        # All names differ, so that swapping two names shows.
        yield [{name: TOGETHER[(turn + place) % len(TOGETHER)] for place, name in enumerate(names)}]
        if len(names) > 1 and turn < len(ALONE):
            for name in names:
                yield [{**base, name: ALONE[turn]} for base in bases]
    for probe in TOGETHER:
        yield [dict.fromkeys(names, probe)]
    for base in bases:
        for name in names:
            for step in (-1, 1):
                yield [{**base, name: base[name] + step}]


def key_of(size: Size) -> tuple[tuple[str, int], ...]:
    """Returns a size as a hashable key."""
    return tuple(sorted(size.items()))


def threads_at(contract: Contract, size: Size) -> int:
    """Returns the threads of the launch at a size; 0 without a launch."""
    try:
        shape = launch_shape(contract, size)
    except ContractError:
        return 0
    return shape.threads * shape.blocks


def usable(contract: Contract, size: Size, threads: int, elements: int = MOST_ELEMENTS) -> bool:
    """Returns True if the contract allows and can launch a size within these limits of threads and elements."""
    try:
        if min(size.values()) < 0 or not size_allowed(contract, size):
            return False
        shape = launch_shape(contract, size)
        scalar_values(contract, size)
        shapes = argument_shapes(contract, size)
    except ContractError:
        return False
    small = sum(math.prod(extents) for extents in shapes.values()) <= elements
    return small and shape.threads * shape.blocks <= threads


def holding_size(contract: Contract, listed: tuple[Size, ...], arrays: Sequence[str], values: int) -> Size | None:
    """Returns a size at which one of the given arrays has at least `values` elements; None if there is none.

    It is a listed size with one name enlarged. The launch's threads, and the elements of all its arrays, are at most `2
    * values`.
    """
    for size in sorted(listed, key=lambda one: math.prod(one.values())):
        shapes = argument_shapes(contract, size)
        for name in arrays:
            elements = math.prod(shapes[name])
            for axis, extent in size.items():
                if not 0 < elements < values or extent <= 0:
                    continue
                grown = {**size, axis: math.ceil(values / elements * extent)}
                if usable(contract, grown, 2 * values, 2 * values):
                    held = math.prod(argument_shapes(contract, grown)[name])
                    if held >= values:
                        return grown
    return None


def reached_size(contract: Contract, listed: Sequence[Size], name: str, number: int) -> Size | None:
    """Returns a size at which a name is twice a number, with several integers in the inputs; None if there is none.

    Integers drawn below the name, as indices are, exceed the number half the time there; at a size just above the number
    they almost never do. Names that only count integers are not enlarged, unless there are no others, and those that
    no integer input's shape contains are reduced, so that the arrays stay small.
    """
    integers = [
        a for a in contract.args if a.direction in ("in", "inout") and a.shape and numpy_dtype(a.dtype).kind in "iu"
    ]
    if not integers:
        return None
    sides = " ".join(str(side) for a in integers for side in a.shape or ())
    counts = {other for other in listed[0] if re.search(rf"\b{other}\b", sides)}
    if name in counts and counts != set(listed[0]):
        return None
    top = {other: max(size[other] for size in listed) for other in listed[0]}
    few = {other: min(top[other], USUAL if other in counts else 3) for other in listed[0]}
    size = {**few, name: 2 * number}
    limits = MOST_REACHED_THREADS, MOST_PROBED_ELEMENTS
    return size if usable(contract, size, *limits) else None


@dataclass(frozen=True, slots=True)
class SmallSizes:
    """Small sizes at which a reference is cheap, measured on behalf of a large size.

    Attributes:
        base: the large size with all names reduced.
        larger: a size between the two.
        probes: by name, `base` with that name enlarged, or with all names if it cannot change alone.
    """

    base: Size
    larger: Size
    probes: Mapping[str, Size]


def small_sizes(contract: Contract, size: Size, elements: int) -> SmallSizes | None:
    """Returns small sizes derived from a large one; None if `require` allows none.

    Names of at most `KEPT`, such as numbers of channels or taps, are not changed.

    Args:
        contract: defines the allowed sizes and the shapes.
        size: the large size.
        elements: maximum number of elements over all arrays at the base size.
    """
    base = next(
        (one for one in _shrinking(size) if _fits(contract, one, elements)),
        None,
    )
    if base is None or base == size:
        return None
    changed = [name for name in size if base[name] != size[name]]
    larger = _grown(contract, base, size, changed, 8 if len(changed) == 1 else 2)
    probes: dict[str, Size] = {}
    for name in changed:
        alone = _grown(contract, base, size, [name], PROBED)
        if alone is not None:
            probes[name] = alone
    if not probes:
        together = _grown(contract, base, size, changed, PROBED)
        probes = {} if together is None else {changed[0]: together}
    return SmallSizes(base, larger or base, probes)


def _shrinking(size: Size) -> Iterator[Size]:
    """Yields the size with all names divided by increasing powers of two."""
    for power in range(64):
        yield {name: _divided(value, 1 << power) for name, value in size.items()}
        if all(value <= KEPT or value >> power <= KEPT for value in size.values()):
            return


def _divided(value: int, by: int) -> int:
    """Returns about `value / by`, at least `KEPT`; factors of two in `value` are kept as far as possible."""
    if value <= KEPT or by == 1:
        return value
    wanted = max(KEPT, value // by)
    even = math.gcd(value, 1 << (wanted.bit_length() - 1))
    return max(wanted // even, 1) * even


def _fits(contract: Contract, size: Size, elements: int) -> bool:
    try:
        if not size_allowed(contract, size):
            return False
        scalar_values(contract, size)
        return sum(math.prod(extents) for extents in argument_shapes(contract, size).values()) <= elements
    except ContractError:
        return False


def _grown(contract: Contract, base: Size, most: Size, names: list[str], times: int) -> Size | None:
    """Returns a size with some names enlarged by the factor, or by half of it; None if that is not allowed."""
    for factor in (times, times // 2):
        grown = {name: min(value * factor, most[name]) if name in names else value for name, value in base.items()}
        if grown != base and _fits(contract, grown, MOST_PROBED_ELEMENTS):
            return grown
    return None
