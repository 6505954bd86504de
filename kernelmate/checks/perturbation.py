"""Perturbed inputs, for measuring a reference's sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.checks.precision import Array, Arrays, blocks_of, flat, is_inexact, module_of, wide
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


@dataclass(frozen=True, slots=True)
class PerturbedInputs:
    """Inputs that are perturbed repeatedly. Unperturbed arrays are shared, since references get copies.

    `wide` holds all inputs, perturbed ones in float64. `fixed` marks the elements of each array that are not perturbed:
    whole numbers up to `LARGEST_WHOLE`, which may be indices or classes stored as floats. Above it, numbers of a narrow
    type are whole by chance and are perturbed.
    """

    wide: Arrays
    fixed: Arrays

    @staticmethod
    def of(arrays: Arrays, names: list[str]) -> PerturbedInputs:
        """Creates perturbed inputs, of which the named ones may be perturbed."""
        widened = {name: wide(array) if name in names else array for name, array in arrays.items()}
        with np.errstate(all="ignore"):
            return PerturbedInputs(
                widened,
                {n: (widened[n] == np.rint(widened[n])) & ~(np.abs(widened[n]) > LARGEST_WHOLE) for n in names},
            )

    def holding(self, edges: Arrays) -> PerturbedInputs:
        """Returns a copy in which the given elements are fixed as well."""
        return PerturbedInputs(self.wide, {name: fixed | edges[name] for name, fixed in self.fixed.items()})

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
    """Returns a copy in which one element is changed by 1/64 of its magnitude, or by 0.001 if it is 0."""
    moved = array.copy()
    one = flat(moved)
    with np.errstate(all="ignore"):
        one[place] += abs(one[place]) / 64 + (1e-3 if one[place] == 0 else 0.0)
    return moved
