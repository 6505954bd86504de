"""Input values that random draws rarely contain: edges, mixed magnitudes, large means, ties, every bit pattern."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelmate.checks.precision import Array, is_float, limits
from kernelmate.records import Argument, Contract, Size
from kernelmate.source import evaluate, numpy_dtype, parse_distribution

KINDS = ("offset", "sorted", "outlier", "ties", "equal", "faint", "tiny", "wide", "large")
"""Kinds of floating values in the rows of a `mixed` array; every array has rows of the first kind."""

MILDER = (KINDS, KINDS[:7], KINDS[:5], KINDS[1:5])
"""Kinds that remain at each milder step: without large magnitudes, without small ones, without a large mean."""

MEAN = 1000.0
"""Mean of values with a large mean; their standard deviation is 1."""

OUTLIER = 10000.37
STEP = 0.7
"""Step of tied values; integers would be taken for indices and compared more strictly."""

BLOCK = 8
"""Minimum length of a run of elements of one kind in a one-dimensional array."""

REACH = 0.8
"""Fraction of a type's exponent range that wide magnitudes span, so that sums stay finite."""

PLANTED_ONE_IN = 16
BARELY_FARTHER = 1.03125
"""Factor by which elements lie farther below the largest one than a constant of the code."""

LARGEST_PLANTED = 1e4
"""Largest magnitude of planted scalars; larger ones often represent infinity.

Also the number of elements per planted element.
"""

CHAINS = 8
"""Number of pairs of Fibonacci numbers that are planted, from the largest ones of a range on."""

NEIGHBOURS = 64
"""Range of integers that are neighbours; a floating type cannot distinguish them if they are large."""

EVERY_BYTE, EVERY_HALF = 1 << 8, 1 << 16


def wide_integers(dtype: np.dtype[Any], shape: tuple[int, ...], rng: Any, bits: int, *, signed: bool) -> Array:
    """Draws integers over the whole range, of mixed magnitudes, with edges; every 16-bit value if there is room.

    Some rows, or runs of a one-dimensional array, hold neighbouring integers, equal integers or sorted ones.

    Args:
        dtype: the dtype of the array.
        shape: the shape of the array.
        rng: a NumPy generator.
        bits: number of bits of the largest magnitude, limited to those of the type.
        signed: True includes negative integers if the type has them.
    """
    info, count = np.iinfo(dtype), math.prod(shape)
    most = min(bits, int(info.max).bit_length())
    high = (1 << most) - 1
    low = 0 if info.min == 0 or not signed else (-high - 1 if most == int(info.max).bit_length() else -high)
    if high - low + 1 == EVERY_HALF <= count:
        every = np.arange(count, dtype=np.int64) % EVERY_HALF + low
        return np.asarray(rng.permutation(every)).astype(dtype).reshape(shape)
    drawn = rng.integers(low, high, count, dtype=dtype, endpoint=True)
    kinds = rng.integers(0, 8, count)
    shifts = rng.integers(0, most + 1, count).astype(dtype)
    drawn = np.where(kinds < 4, drawn >> shifts, drawn)
    powers = [sign * ((1 << power) + step) for power in range(most) for sign in (1, -1) for step in (-1, 0, 1)]
    edges = np.array(sorted({low, high, *(one for one in powers if low <= one <= high)}), dtype)
    drawn = np.where(kinds == 7, edges[rng.integers(0, edges.size, count)], drawn).astype(dtype)
    drawn = _in_stretches(drawn, shape, (low, high), rng)
    if count:
        drawn[rng.integers(0, count, 2)] = np.array([low, high], dtype)
    mixed: Array = drawn.astype(dtype).reshape(shape)
    return mixed


def high_integers(dtype: np.dtype[Any], shape: tuple[int, ...], rng: Any, bits: int) -> Array:
    """Draws integers from the top eighth of the range from 0 to 2^bits - 1, the maximum included."""
    high = (1 << min(bits, int(np.iinfo(dtype).max).bit_length())) - 1
    drawn: Array = rng.integers(high - high // 8, high, shape, dtype=dtype, endpoint=True)
    return drawn


def lowest_integers(dtype: np.dtype[Any], shape: tuple[int, ...], rng: Any, bits: int) -> Array:
    """Returns the smallest integers of a type, or -2^bits; of an unsigned type, the largest."""
    info = np.iinfo(dtype)
    lowest = max(info.min, -(1 << min(bits, 63))) if info.min else info.max
    full: Array = rng.integers(lowest, lowest, shape, dtype=dtype, endpoint=True)
    return full


def repeated(values: Array, rng: Any) -> Array:
    """Copies the first, the largest or the smallest element of each row, in turn, to several positions of the row."""
    if values.size and values.shape and values.shape[-1] > 1:
        rows = values.reshape(-1, values.shape[-1])
        for turn, copied in enumerate((rows[0::3, :1], _largest(rows[1::3]), -_largest(-rows[2::3]))):
            rows[turn::3, _places(rows, rng)] = copied
        return rows.reshape(values.shape)
    return values


MOST_STEPS = 8
"""Largest distance, in units of the last place, of elements that are close to the largest one of their row."""


def close(values: Array, rng: Any) -> Array:
    """Sets some elements of each row a few units of the last place below its largest, or above its smallest one."""
    if values.size and values.shape and values.shape[-1] > 1:
        rows = values.reshape(-1, values.shape[-1])
        for turn, sign in enumerate((1, -1)):
            near, places = sign * rows[turn::2], _places(rows, rng)
            steps = rng.integers(1, MOST_STEPS + 1, places.shape)
            held = np.repeat(_largest(near), len(places), axis=1)
            for step in range(MOST_STEPS):
                held = np.where(step < steps, np.nextafter(held, held.dtype.type(-np.inf)), held)
            rows[turn::2, places] = sign * held
        return rows.reshape(values.shape)
    return values


def _places(rows: Array, rng: Any) -> Any:
    return rng.integers(0, rows.shape[-1], max(rows.shape[-1] // PLANTED_ONE_IN, 1))


def _largest(rows: Array) -> Array:
    largest: Array = rows.max(axis=1, keepdims=True)
    return largest


ONE_BIT_OFF = 0.1
"""Fraction of the integers of a row that differ from the rest in one bit."""


def _in_stretches(drawn: Array, shape: tuple[int, ...], bounds: tuple[int, int], rng: Any) -> Array:
    """Keeps half of the rows; of the others a third each become neighbours, equal integers, or sorted.

    In every other row of equal integers some differ from the rest in a single bit, the highest ones included.
    """
    along = _row(shape)
    rows = -(-drawn.size // max(along, 1))
    padded: Array = np.resize(drawn, (rows, along)) if drawn.size else drawn.reshape(0, along)
    near, equal, rising = (padded[start::6] for start in (1, 3, 5))
    low, high = bounds
    apart = rng.integers(0, min(NEIGHBOURS, (high - low) // 4 + 1), near.shape).astype(drawn.dtype)
    near[:] = (
        np.minimum(near[:, :1], drawn.dtype.type(high - NEIGHBOURS if high > 2 * NEIGHBOURS else high // 2)) + apart
    )
    equal[:] = equal[:, :1]
    bits = (np.uint64(1) << rng.integers(0, 8 * drawn.dtype.itemsize, equal[1::2].shape, np.uint64)).astype(drawn.dtype)
    flipped = np.where(rng.random(bits.shape) < ONE_BIT_OFF, equal[1::2] ^ bits, equal[1::2])
    equal[1::2] = np.where((flipped >= low) & (flipped <= high), flipped, equal[1::2])
    rising.sort(axis=1)
    return padded.reshape(-1)[: drawn.size]


def _row(shape: tuple[int, ...]) -> int:
    """Returns the number of consecutive elements of one kind."""
    return shape[-1] if len(shape) > 1 else max(BLOCK, -(-math.prod(shape) // (2 * len(KINDS))))


def every_byte(drawn: Array, rng: Any) -> Array:
    """Returns the drawn bytes with each of the 256 values among them if there is room."""
    flat = drawn.reshape(-1)
    if flat.size >= EVERY_BYTE:
        start = int(rng.integers(0, flat.size - EVERY_BYTE + 1))
        flat[start : start + EVERY_BYTE] = rng.permutation(EVERY_BYTE).astype(np.uint8).view(flat.dtype)
    return drawn


def every_pattern(dtype: np.dtype[Any], shape: tuple[int, ...], rng: Any) -> Array:
    """Returns evenly spread finite bit patterns of an 8-bit or 16-bit floating type; all of them if there is room."""
    count, whole = math.prod(shape), 1 << (8 * dtype.itemsize)
    words = np.arange(whole, dtype=np.uint32).astype(f"u{dtype.itemsize}")
    with np.errstate(all="ignore"):
        finite = words[np.isfinite(words.view(dtype).astype(np.float64))]
    # Steps of the golden ratio spread any number of places evenly.
    step = next(one for one in range(round(finite.size * 0.618), finite.size) if math.gcd(one, finite.size) == 1)
    places = (int(rng.integers(0, finite.size)) + np.arange(count, dtype=np.int64) * step) % finite.size
    patterns: Array = finite[places].view(dtype).reshape(shape)
    return patterns


def mixed_floats(dtype: np.dtype[Any], shape: tuple[int, ...], rng: Any, milder: int) -> Array:
    """Returns rows (or stretches of a one-dimensional array), each of one kind of `MILDER[milder]`, before casting to the dtype."""
    count, bounds = math.prod(shape), limits(dtype)
    along = _row(shape)
    rows = -(-count // max(along, 1))
    normal = rng.standard_normal((rows, along))
    kinds = MILDER[milder]
    order = (kinds[0], *rng.permutation(kinds[1:]))
    chosen = np.arange(rows) % len(kinds)
    for place, kind in enumerate(order):
        normal[chosen == place] = _of_kind(str(kind), normal[chosen == place], REACH * math.log2(bounds.top), rng)
    values: Array = np.clip(normal.reshape(-1)[:count], -bounds.top, bounds.top).reshape(shape)
    return values


def offset_floats(dtype: np.dtype[Any], shape: tuple[int, ...], rng: Any, sign: int = 0) -> Array:
    """Draws normal numbers around a large mean of the given sign, or of either if it is 0."""
    mean = MEAN * (sign or (1 if rng.integers(0, 2) else -1))
    values: Array = np.clip(rng.standard_normal(shape) + mean, -limits(dtype).top, limits(dtype).top)
    return values


def late_floats(shape: tuple[int, ...], rng: Any) -> Array:
    """Draws rows of negative numbers that become positive from a random index in the last quarter on."""
    values: Array = -np.abs(rng.standard_normal(shape)) - 2.0**-10
    if values.size:
        rows = values.reshape(-1, shape[-1]) if shape else values.reshape(1, 1)
        along = rows.shape[1]
        first = rng.integers(along - along // 4 - 1, along, (rows.shape[0], 1))
        rows[:] = np.where(np.arange(along) >= first, -rows, rows)
    return values


def with_infinite_halves(shape: tuple[int, ...], module: Any = np) -> Any:
    """Returns an array with minus infinity in the first half of the columns, and infinity in the others.

    So are all elements of most windows, columns and tiles, in which a maximum that begins with a finite number shows.
    """
    columns = shape[-1] if shape else 1
    row = module.where(module.arange(columns) < columns // 2, -np.inf, np.inf)
    return module.broadcast_to(row, shape or (1,)).copy().reshape(shape)


def strided(values: Array, strides: Sequence[int]) -> Array:
    """Returns an array with each row's elements reordered: the largest ones are a stride apart, from a random offset on.

    A thread, lane or bank that processes every stride-th element receives all of the largest; the rows use the strides in turn.
    """
    if values.ndim == 0 or values.size == 0:
        return values
    rows = np.array(np.sort(values.reshape(-1, values.shape[-1]), axis=1)[:, ::-1])
    columns = np.arange(rows.shape[1])
    for place, stride in enumerate(strides):
        order = np.lexsort((columns, (columns - place) % stride))
        part = rows[place :: len(strides)]
        part[:, order] = part.copy()
    found: Array = rows.reshape(values.shape)
    return found


def _of_kind(kind: str, normal: Array, exponents: float, rng: Any) -> Array:
    if kind == "offset":
        return normal + np.where(np.arange(len(normal)) % 2, -MEAN, MEAN)[:, None]
    if kind == "sorted":
        rising: Array = np.sort(normal, axis=1)
        rising[1::2] = rising[1::2, ::-1]
        return rising
    if kind == "outlier":
        if normal.size:
            places = rng.integers(0, normal.shape[1], len(normal))
            places[::2] = 0  # distances from the first element of a row, for a one-pass variance, lose their digits
            normal[np.arange(len(normal)), places] = OUTLIER
        return normal
    if kind == "ties":
        tied = np.rint(normal) * STEP
        # The largest elements of some rows, and the smallest of others, are zeros of either sign, which compare equal
        # and have other bits.
        tied[1::3] = -np.abs(tied[1::3])
        tied[2::3] = np.abs(tied[2::3])
        zeros = tied == 0
        tied[zeros] = np.copysign(0.0, normal[zeros])
        return tied
    if kind == "equal":
        return np.broadcast_to(normal[:, :1], normal.shape)
    if kind in ("wide", "faint"):
        most = exponents if kind == "wide" else 0.0
        wide: Array = np.copysign(np.exp2(rng.uniform(-exponents, most, normal.shape)), normal)
        return wide
    scaled: Array = normal * 2.0 ** (exponents / (-2 if kind == "tiny" else 2))
    return scaled


def plant(
    argument: Argument, array: Array, size: Size, scalars: Sequence[float], rng: Any, *, alone: bool = False
) -> Array:
    """Plants values in an array at which comparisons or rounding change.

    These are scalars, their neighbours (unless `alone`), odd multiples of their halves, and the ends of a range. Values
    outside a declared distribution are not planted.
    """
    dtype = numpy_dtype(argument.dtype)
    flat = array.reshape(-1)
    if flat.size < 4 or dtype.kind in "bc":
        return array
    values = _about(scalars, dtype, alone=alone)
    if argument.distribution is not None:
        values = _in_support(argument.distribution, values, size)
    if values.size:
        places = rng.integers(0, flat.size, max(flat.size // PLANTED_ONE_IN, 1))
        with np.errstate(all="ignore"):
            flat[places] = np.resize(rng.permutation(values), places.size).astype(dtype)
    return array


def plant_constants(
    argument: Argument, array: Array, size: Size, constants: Sequence[float], rng: Any, *, alone: bool = False
) -> Array:
    """Plants constants of a kernel's code, their neighbours, and numbers between them, among an array's elements.

    Neighbours of floating-point ones are left out if `alone`. Floating ones are planted with either sign. Values outside a declared distribution are not planted.
    """
    dtype = numpy_dtype(argument.dtype)
    flat = array.reshape(-1)
    values = _about_constants(constants, dtype, alone=alone)
    if argument.distribution is not None:
        values = _in_support(argument.distribution, values, size)
    if values.size and flat.size >= 4:
        places = rng.integers(0, flat.size, max(flat.size // PLANTED_ONE_IN, 1))
        with np.errstate(all="ignore"):
            flat[places] = np.resize(rng.permutation(values), places.size).astype(dtype)
    if argument.distribution is None and dtype.kind == "f":
        _far_below_one(array, [abs(value) for value in constants if 1 < abs(value) <= LARGEST_PLANTED], rng)
    return array


def _far_below_one(array: Array, distances: Sequence[float], rng: Any) -> None:
    """Makes one element of some rows exceed all others by slightly more than a distance.

    Differences from the largest element of a row are compared with constants, which leaves out exponentials.
    """
    if array.ndim < 2 or array.size < 2 * array.shape[-1]:
        return
    rows = array.reshape(-1, array.shape[-1])
    for row, distance in zip(rows[: len(rows) // 2], rng.permutation(distances), strict=False):
        row[:] = -(distance * BARELY_FARTHER) - np.abs(rng.standard_normal(row.size)) / 16
        row[int(rng.integers(0, row.size))] = 0


def _about_constants(constants: Sequence[float], dtype: np.dtype[Any], *, alone: bool) -> Array:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        whole = {int(value) + step for value in constants for step in (-1, 0, 1)}
        return np.array(sorted(one for one in whole if info.min <= one <= info.max), dtype)
    own = np.array(constants).astype(dtype)
    own = np.unique(np.concatenate([own, -own]))
    between = (own[1:] / 2 + own[:-1] / 2).astype(dtype)
    beside = [] if alone else [np.nextafter(own, dtype.type(end)) for end in (np.inf, -np.inf)]
    found: Array = np.concatenate([own, *beside, between])
    return found[np.isfinite(found)].astype(np.float64)


def _about(scalars: Sequence[float], dtype: np.dtype[Any], *, alone: bool) -> Array:
    near = [value for value in scalars if abs(value) <= LARGEST_PLANTED]
    if not is_float(dtype):
        info = np.iinfo(dtype)
        whole = {round(value) + step for value in near for step in (-1, 0, 1)}
        return np.array(sorted(one for one in whole if info.min <= one <= info.max), np.int64)
    values = np.array([sign * value for value in near for sign in (1, -1)])
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            own = values.astype(dtype)
            beside = [] if alone else [np.nextafter(own, dtype.type(end)) for end in (np.inf, -np.inf)]
            values = np.concatenate([own, *beside, _halves(near, dtype)])
    return values.astype(np.float64)


def _halves(scalars: Sequence[float], dtype: np.dtype[Any]) -> Array:
    """Returns odd multiples of half a scalar, and of half its inverse, that the dtype holds exactly.

    Their quotients are rounding ties.
    """
    own = [float(dtype.type(value)) for value in scalars]
    units = [unit for value in own if value for unit in (value, 1 / value) if abs(unit) <= LARGEST_PLANTED]
    wanted = np.array([place * unit for unit in units for place in (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5)])
    held: Array = wanted.astype(dtype)
    exact: Array = held[held.astype(np.float64) == wanted]
    return exact


def _in_support(text: str, values: Array, size: Size) -> Array:
    distribution = parse_distribution(text)
    numbers = [evaluate(one, size) for one in distribution.arguments]
    if distribution.name == "normal":
        mean, deviation = numbers or (0.0, 1.0)
        kept: Array = values[np.abs(values - mean) <= 4 * abs(deviation)]
        return kept
    if distribution.name not in ("uniform", "integers") or not numbers[0] < numbers[1]:
        return values[:0]
    inside: Array = values[(values >= numbers[0]) & (values < numbers[1])]
    if distribution.name == "integers":
        inside = np.concatenate([inside, [int(numbers[0]), int(numbers[1]) - 1]]).astype(np.int64)
    return inside


def integer_range(argument: Argument, size: Size) -> tuple[int, int] | None:
    """Returns the smallest and the largest value of a declared range of integers; None without one."""
    distribution = None if argument.distribution is None else parse_distribution(argument.distribution)
    if distribution is None or distribution.name != "integers":
        return None
    low, high = (int(evaluate(text, size)) for text in distribution.arguments)
    return low, high - 1


def tie(array: Array, other: Array, rng: Any) -> Array:
    """Makes some elements of an array equal, or adjacent, to those of another array of its kind."""
    flat, theirs = array.reshape(-1), other.reshape(-1)
    places = rng.integers(0, max(flat.size, 1), flat.size // PLANTED_ONE_IN)
    taken = theirs[places]
    if array.dtype.kind in "iu":
        with np.errstate(all="ignore"):
            taken = taken + rng.integers(-1, 2, places.size).astype(array.dtype)
    flat[places] = taken
    return array


COLLATZ = 27, 97, 871, 6171, 77031, 837799, 8400511, 63728127, 670617279
"""Numbers below a power of ten with the longest sequences of halving, or of tripling plus one (OEIS A284668)."""


def plant_chains(arrays: Sequence[Array], bounds: Sequence[tuple[int, int]], rng: Any) -> None:
    """Plants integers for which common loops take most steps: Euclid's algorithm, and halving or tripling.

    Those of Euclid's algorithm are pairs of neighbouring Fibonacci numbers, at equal places of two arrays.

    Args:
        arrays: arrays of one shape, which are changed; a single one also gets numbers of `COLLATZ`.
        bounds: for each array its smallest and its largest value.
        rng: a NumPy generator.
    """
    most, least = min(high for _, high in bounds), max(low for low, _ in bounds)
    numbers = [1, 2]
    while numbers[-1] + numbers[-2] <= most:
        numbers.append(numbers[-1] + numbers[-2])
    steps = [
        step for step in range(min(CHAINS, len(numbers) - len(arrays))) if numbers[-1 - step - len(arrays) + 1] >= least
    ]
    count = arrays[0].size
    if not steps or count < BLOCK:
        return
    taken = np.resize(steps, max(count // PLANTED_ONE_IN, min(count, 2 * len(steps))))
    places = rng.permutation(count)[: taken.size]
    turned = np.arange(taken.size) // len(steps) % 2  # the smaller number first takes one step more
    for place, array in enumerate(arrays):
        rank = np.where(turned, len(arrays) - 1 - place, place)
        array.reshape(-1)[places] = np.array(numbers, np.int64)[-1 - rank - taken].astype(array.dtype)
    known = [number for number in COLLATZ if least <= number <= most]
    if len(arrays) == 1 and known:
        where = places[len(steps) :]
        arrays[0].reshape(-1)[where] = np.resize(known[::-1], where.size).astype(arrays[0].dtype)


def plantable(contract: Contract) -> bool:
    """Returns True if anything can be planted: a scalar argument, or the ends of an integer range."""
    if contract.inputs is not None:
        return False
    inputs = [a for a in contract.args if a.direction in ("in", "inout")]
    ranged = any((a.distribution or "").lstrip().startswith("integers") for a in inputs)
    scalar = any(a.shape is None and a.value is not None for a in contract.args)
    return ranged or (scalar and bool(inputs))
