"""Perturbed inputs, for measuring a reference's sensitivity and for finding rounding ties.

A rounding tie is an integer output element that may have either of two values, since the rounded quantity is near a tie.
`rint(x / scale)` of a value that lies within rounding error of a half may be either neighbour, `x * w > t` either
truth, and the position of the larger of two that are nearly equal either place. The reference itself shows which
elements these are: their values change when its floating inputs are perturbed by a few units in the last place, or when
it computes in the kernel's type. If an element also changes under much smaller perturbations, the value is an exact
tie, and only the reference's own answer is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelmate.checks.evaluations import Expected, Reference, evaluations
from kernelmate.checks.precision import (
    Array,
    Arrays,
    blocks_of,
    flat,
    generator,
    is_inexact,
    module_of,
    unit_roundoff,
    wide,
)
from kernelmate.checks.reference_messages import Call
from kernelmate.records import Contract, Size
from kernelmate.source import scalar_values

LARGEST_WHOLE = 2.0**20
"""Largest magnitude of values that are treated as integers; above it many float32 values are whole by chance."""


def movable(contract: Contract, arrays: Arrays) -> list[str]:
    """Returns the floating inputs, which may be perturbed; integers may be indices and are exact."""
    return [
        a.name
        for a in contract.args
        if a.direction in ("in", "inout") and is_inexact(arrays[a.name].dtype) and arrays[a.name].size
    ]


FIRST = 64
"""Number of elements that distinguish most arrays from ascending ones without examining the others."""


def is_ascending(array: Array) -> bool:
    """Returns True if each row of an array ascends, as a table that is searched does; False for rows of one element."""
    if array.ndim == 0 or array.shape[-1] < 2 or not array.size:
        return False
    start = array.reshape(-1)[: min(FIRST, array.shape[-1])]
    return all(bool((one[..., :-1] <= one[..., 1:]).all()) for one in (start, array))


@dataclass(frozen=True, slots=True)
class PerturbedInputs:
    """Inputs that are perturbed repeatedly. Unperturbed arrays are shared, since references get copies.

    `wide` holds all inputs, perturbed ones in float64. `fixed` marks the elements of each array that are not perturbed:
    whole numbers up to `LARGEST_WHOLE`, which may be indices or classes stored as floats. Above it, numbers of a narrow
    type are whole by chance and are perturbed. `ascending` arrays are sorted after it, since references may refuse others.
    """

    wide: Arrays
    fixed: Arrays
    ascending: frozenset[str] = frozenset()

    @staticmethod
    def of(arrays: Arrays, names: list[str]) -> PerturbedInputs:
        """Creates perturbed inputs, of which the named ones may be perturbed."""
        widened = {name: wide(array) if name in names else array for name, array in arrays.items()}
        with np.errstate(all="ignore"):
            return PerturbedInputs(
                widened,
                {n: (widened[n] == np.rint(widened[n])) & ~(np.abs(widened[n]) > LARGEST_WHOLE) for n in names},
                frozenset(name for name in names if is_ascending(widened[name])),
            )

    def holding(self, edges: Arrays) -> PerturbedInputs:
        """Returns a copy in which the given elements are fixed as well."""
        return replace(self, fixed={name: fixed | edges[name] for name, fixed in self.fixed.items()})

    def moved(self, move: float, rng: Any) -> dict[str, Array]:
        """Returns the inputs, each element perturbed by a normally distributed factor.

        Args:
            move: standard deviation of the relative perturbation.
            rng: a generator of the arrays' own module.
        """
        moved = dict(self.wide)
        for name, fixed in self.fixed.items():
            held, stay = flat(self.wide[name]), flat(fixed)
            moved[name] = module_of(held).empty(fixed.shape, held.dtype)
            for part in blocks_of(held):
                factors = rng.standard_normal(held[part].shape)
                factors *= move
                factors += 1.0
                factors[stay[part]] = 1.0
                with np.errstate(all="ignore"):
                    moved[name].reshape(-1)[part] = held[part] * factors
            if name in self.ascending:
                moved[name].sort(axis=-1)
        return moved


def at_edges(contract: Contract, arrays: Arrays, size: Size, name: str) -> Array:
    """Returns elements of a floating input that equal a scalar argument, its negative or a neighbour, where comparisons flip."""
    scalars = scalar_values(contract, size)
    held = arrays[name]
    edges = module_of(held).zeros(held.shape, bool)
    if held.dtype.kind != "f":
        return edges  # type: ignore[no-any-return]
    for argument in contract.args:
        if argument.shape is None and argument.value is not None:
            value = abs(float(arrays[argument.name] if argument.name in arrays else scalars[argument.name]))
            if 0 < value < math.inf:
                edges |= np.abs(np.abs(held) - held.dtype.type(value)) <= 2 * np.spacing(held.dtype.type(value))
    return edges  # type: ignore[no-any-return]


def with_one_moved(array: Array, place: int) -> Array:
    """Returns a copy in which one element is changed by 1/64 of its magnitude, or by 0.001 if it is 0; ascending rows are sorted."""
    moved = array.copy()
    one = flat(moved)
    with np.errstate(all="ignore"):
        one[place] += abs(one[place]) / 64 + (1e-3 if one[place] == 0 else 0.0)
    if is_ascending(array):
        moved.sort(axis=-1)
    return moved


DRAWS, FEWEST = 24, 6
"""Maximum and minimum number of perturbed evaluations; 24 rarely miss an element that changes in half of them."""

UNITS = 4.0
"""Unit roundoffs by which inputs are perturbed."""

EXACT_MOVE, EXACT_DRAWS = 2.0**-46, 3
"""Relative perturbation that changes only exact ties, and the number of evaluations with it."""

MOST_SHARE, MOST_FEW = 0.01, 4
"""Maximum share, and number, of differing elements that near ties may explain; more indicate another rounding."""

TiedValues = tuple[Array, Array]


def few_differ(got: Array, want: Array) -> bool:
    """Returns True if so few elements differ that near ties may explain them."""
    different = int((got != want).sum())
    return different <= max(MOST_FEW, MOST_SHARE * got.size)


def measured_ties(
    contract: Contract, reference: Reference, arrays: Arrays, size: Size, want: Expected, names: list[str],
    seed: tuple[int, ...], draws: int,
) -> dict[str, TiedValues]:  # fmt: skip
    """Returns for each named output the smallest and largest value of each element under small perturbations.

    Args:
        contract: the contract in force.
        reference: the reference that `want` came from; it is evaluated `draws` times and a few times more.
        arrays: the inputs.
        size: the size of the inputs.
        want: the reference's outputs for the inputs.
        names: the integer outputs to examine.
        seed: the seed of the perturbations.
        draws: number of perturbations, at most `DRAWS`.
    """
    moving = movable(contract, arrays)
    if not moving:
        return {name: (want[name], want[name]) for name in names}
    double = all(arrays[name].dtype == np.float64 for name in moving)
    working = np.dtype(np.float64 if double else np.float32)
    inputs, rng = PerturbedInputs.of(arrays, moving), generator((*seed, 0x71E), arrays[moving[0]])

    def calls() -> Iterator[Call]:
        for _ in range(EXACT_DRAWS):
            yield inputs.moved(EXACT_MOVE, rng), None
        for draw in range(draws):
            moved = inputs.moved(UNITS * unit_roundoff(working), rng)
            if draw % 2 and not double:
                moved.update({name: wide(moved[name], working) for name in moving})
                yield moved, working
            else:
                yield moved, None

    low, high = ({name: want[name].copy() for name in names} for _ in range(2))
    exact = {name: module_of(want[name]).zeros(want[name].shape, bool) for name in names}
    for number, answer in enumerate(evaluations(reference, calls(), size)):
        for name in names:
            if number < EXACT_DRAWS:
                exact[name] |= answer[name] != want[name]
            low[name] = module_of(want[name]).minimum(low[name], answer[name])
            high[name] = module_of(want[name]).maximum(high[name], answer[name])
    for name in names:
        low[name][exact[name]] = want[name][exact[name]]
        high[name][exact[name]] = want[name][exact[name]]
    return {name: (low[name], high[name]) for name in names}


def wanted_of_ties(got: Array, want: Array, pair: TiedValues | None) -> Array:
    """Returns the expected output; for an element with two right values, the value of `got` if it is one of them."""
    if pair is None:
        return want
    either = (got == pair[0]) | (got == pair[1])
    return module_of(want).where(either, got.astype(want.dtype), want)  # type: ignore[no-any-return]
