"""Root mean squares over output elements of similar scale: nearly equal results, neighbours, rows, columns.

The effect of a random perturbation may be near zero at an element by chance, but not over a pool. `extrapolation`
chooses between poolings.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from kernelmate.checks.precision import Array, Arrays, blocks_of, flat, is_inexact, module_of, on_host, wide

BLOCKS = (8, 64)
"""Numbers of consecutive elements that are pooled."""

LEAST = 64
"""Minimum number of elements in a pool of nearly equal results."""

BINS = 1 << 13
"""Bins for values of one sign: float64's exponent and the first two bits of the mantissa."""

VECTOR = 8
"""Largest last axis that is treated as vector components."""

FEW = 32
"""Number of elements below which a pool is not reliable."""


def rms(array: Array) -> float:
    """Returns the root mean square of the finite elements."""
    total, count, held = 0.0, 0, flat(array)
    with np.errstate(all="ignore"):
        for part in blocks_of(held):
            square = np.abs(held[part]) ** 2
            some = float(square.sum())
            if math.isfinite(some):
                total, count = total + some, count + square.size
                continue
            finite = np.isfinite(square)
            total, count = total + float(np.where(finite, square, 0.0).sum()), count + int(finite.sum())
    return math.sqrt(total / count) if count else 0.0


def poolings(shape: tuple[int, ...], given: Arrays) -> tuple[str, ...]:
    """Returns the names of the poolings for an output of this shape.

    The names stand for pools of elements with nearly equal results, result vectors or inputs of the same shape; of
    neighbours; and along or across an axis.
    """
    axes = [axis for axis, extent in enumerate(shape) if len(shape) > 1 and extent > 1]
    names = [f"{way} {axis}" for axis in axes for way in ("along", "across")]
    vectors = ("vector",) if len(shape) > 1 and 1 < shape[-1] <= VECTOR else ()
    like = (f"like {name}" for name, array in given.items() if array.shape == shape and is_inexact(array.dtype))
    return ("size", *like, *vectors, *(f"block {count}" for count in BLOCKS), *names)


def pool_of(pooling: str, step: Array, want: Array, given: Arrays) -> tuple[Array, int]:
    """Returns the pooled root mean square for each element, as a new array, and the size of the smallest pool."""
    way, _, axis = pooling.partition(" ")
    if way == "size":
        return _by_size(step, want)
    if way == "like":
        return _by_size(step, wide(given[axis]))
    if way == "vector":
        with np.errstate(all="ignore"):
            length = np.sqrt((np.abs(want) ** 2).sum(axis=-1, keepdims=True))
        return _by_size(step, np.broadcast_to(length, want.shape))
    number = int(axis)
    if way == "block":
        return _by_block(step, number)
    axes = (number,) if way == "along" else tuple(one for one in range(step.ndim) if one != number)
    pool = np.sqrt((step**2).mean(axis=axes, keepdims=True))
    return np.broadcast_to(pool, step.shape).copy(), step.size // max(pool.size, 1)


def _by_size(step: Array, want: Array) -> tuple[Array, int]:
    """Pools elements whose expected values have the same sign and lie in the same quarter of a binade.

    Sparse bins include the adjacent bins.
    """
    xp, wanted, held = module_of(want), flat(want), flat(step)
    bins = xp.empty(wanted.shape, np.int16)
    count, total = np.zeros(2 * BINS), np.zeros(2 * BINS)
    for part in blocks_of(wanted):
        some = _bins(wanted[part])
        bins[part] = some
        count += on_host(xp.bincount(some, minlength=2 * BINS))
        total += on_host(xp.bincount(some, weights=held[part] ** 2, minlength=2 * BINS))
    halves = zip(np.split(count, 2), np.split(total, 2), strict=True)
    roots = xp.asarray(np.concatenate([_smoothed(one, other) for one, other in halves]))
    pool = xp.empty(step.shape)
    for part in blocks_of(wanted):
        pool.reshape(-1)[part] = roots[bins[part]]
    return pool, min(LEAST, step.size)


def _bins(wanted: Array) -> Array:
    """Returns the bin of each value by magnitude; bins of negative values follow those of others."""
    if wanted.dtype.kind == "c":
        with np.errstate(all="ignore"):
            wanted = np.copysign(np.abs(wanted), wanted.real)
    bits = wanted.astype(np.float64, copy=False).view(np.int64)
    return (bits >> 50) & (2 * BINS - 1)


def _smoothed(count: Array, total: Array) -> Array:
    """Returns the root mean squares of bins; bins with fewer than `LEAST` elements include neighbouring bins."""
    held, root = np.flatnonzero(count), np.zeros(count.size)
    counts, totals = (np.concatenate([[0.0], np.cumsum(array[held])]) for array in (count, total))
    places, left = np.arange(held.size), np.ones(held.size, bool)
    for reach in itertools.count():
        if not left.any():
            return root
        low, high = np.maximum(places - reach, 0), np.minimum(places + reach + 1, held.size)
        some = counts[high] - counts[low]
        done = left & ((some >= LEAST) | (reach >= held.size))
        root[held[done]] = np.sqrt(np.maximum(totals[high] - totals[low], 0.0)[done] / some[done])
        left &= ~done
    raise AssertionError


def _by_block(step: Array, block: int) -> tuple[Array, int]:
    """Pools blocks of `block` consecutive elements in memory order."""
    xp, flat = module_of(step), step.reshape(-1)
    blocks = -(-flat.size // block)
    padded = xp.zeros(blocks * block)
    padded[: flat.size] = flat**2
    total = padded.reshape(blocks, block).sum(axis=1)
    held = xp.full(blocks, float(block))
    if flat.size % block:
        held[-1] = flat.size % block
    return np.repeat(np.sqrt(total / held), block)[: flat.size].reshape(step.shape), FEW


def of_vector(step: Array) -> Array:
    """Returns each element's own step, or its vector's root mean square if the last axis holds vector components."""
    if step.ndim < 2 or not 1 < step.shape[-1] <= VECTOR:
        return step
    return np.broadcast_to(np.sqrt((step**2).mean(axis=-1, keepdims=True)), step.shape)
