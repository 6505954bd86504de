"""Inputs from the arrays that a notebook has given for a kernel: the arrays themselves, and others of their values."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kernelmate.checks.precision import Array, is_inexact
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Argument
from kernelmate.source import numpy_dtype, parse_distribution
from kernelmate.source.distributions import LIVE


def live_values(
    argument: Argument, shape: tuple[int, ...], directory: Path, rng: np.random.Generator, *, first: bool
) -> Array | None:
    """Returns a live array's values for one set of inputs; None if the argument has no array of this shape.

    The first set is the array unchanged. Other sets permute its values, so that they differ but keep the distribution;
    ascending integers, such as row offsets, are not permuted. Integers that repeat are drawn anew from the array's
    values: no permutation changes their sum or histogram.

    Raises:
        ReferenceFailed: the copy cannot be read.
    """
    if argument.direction in ("out", "scratch") or argument.distribution is None:
        return None
    distribution = parse_distribution(argument.distribution)
    if distribution.name != LIVE:
        return None
    array = _read(directory / (distribution.path or ""), argument)
    dtype = numpy_dtype(argument.dtype)
    inexact = is_inexact(dtype)
    if array.shape == shape:
        if first or (not inexact and _rising(array)):
            return array
        return _shuffled(array, rng) if inexact else _redrawn(array, rng)
    if not inexact or distribution.otherwise is not None or not array.size:
        return None
    values: Array = array.reshape(-1)[rng.integers(0, array.size, shape)]
    return values


def _rising(array: Array) -> bool:
    flat = array.reshape(-1)
    return bool((flat[1:] >= flat[:-1]).all())


def _shuffled(array: Array, rng: np.random.Generator) -> Array:
    """Permutes the values; if all are equal, returns ordinary random numbers instead."""
    flat = array.reshape(-1)
    if flat.size and (flat.view(np.uint8).reshape(flat.size, -1) == flat[:1].view(np.uint8)).all():
        return np.asarray(rng.standard_normal(array.shape)).astype(array.dtype)
    return np.asarray(rng.permutation(flat)).reshape(array.shape)


def _redrawn(array: Array, rng: np.random.Generator) -> Array:
    """Draws integers from an array's values, without the extreme ones if there are others, so that no sum, count or extreme value stays.

    Values that are all different, such as positions to write to, are permuted, and stay different.
    """
    flat = array.reshape(-1)
    values = np.unique(flat)
    if values.size in (1, flat.size):
        return _shuffled(array, rng)
    inner = flat[(flat > values[0]) & (flat < values[-1])]
    drawn: Array = rng.choice(inner if inner.size else flat, array.shape)
    return drawn


def _read(path: Path, argument: Argument) -> Array:
    try:
        with np.load(path, allow_pickle=False) as held:
            stored = held[argument.name]
            shape = tuple(int(extent) for extent in held[f"{argument.name}.shape"])
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ReferenceFailed(
            f"The copy of the array given for {argument.name} cannot be read: {error}.", hint="Run the cell again."
        ) from None
    # Stored as bytes, because NumPy's file format does not know bfloat16.
    array: Array = np.frombuffer(stored.tobytes(), numpy_dtype(argument.dtype)).reshape(shape)
    return array
