"""Inputs moved a little, for measuring how far a reference follows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.checks.precision import Array, Arrays, blocks_of, flat, is_inexact, module_of, wide
from kernelmate.records import Contract, Size
from kernelmate.source import scalar_values

LARGEST_WHOLE = 2.0**20
"""Whole numbers up to here may be meant as such; beyond, many numbers of float32 are whole by chance."""


def movable(contract: Contract, arrays: Arrays) -> list[str]:
    """Inputs that may be moved a little: floating ones. Integers may be positions, and are exact."""
    return [
        a.name
        for a in contract.args
        if a.direction in ("in", "inout") and is_inexact(arrays[a.name].dtype) and arrays[a.name].size
    ]


@dataclass(frozen=True, slots=True)
class PerturbedInputs:
    """Inputs that are moved again and again; references get copies of what they are given, so the others are shared.

    `wide` holds them all, in float64 those that move. `fixed` says for each that moves which elements stay: whole numbers
    may be positions or classes in floating dress, and are exact in any case. Beyond `LARGEST_WHOLE` numbers of a
    narrow type are whole by chance, and move.
    """

    wide: Arrays
    fixed: Arrays

    @staticmethod
    def of(arrays: Arrays, names: list[str]) -> PerturbedInputs:
        """The inputs, of which those with these names may be moved."""
        widened = {name: wide(array) if name in names else array for name, array in arrays.items()}
        with np.errstate(all="ignore"):
            return PerturbedInputs(
                widened,
                {n: (widened[n] == np.rint(widened[n])) & ~(np.abs(widened[n]) > LARGEST_WHOLE) for n in names},
            )

    def holding(self, edges: Arrays) -> PerturbedInputs:
        """The same inputs, of which these elements stay as well."""
        return PerturbedInputs(self.wide, {name: fixed | edges[name] for name, fixed in self.fixed.items()})

    def moved(self, move: float, rng: Any) -> dict[str, Array]:
        """The inputs with those that may be moved by about `move` of each element.

        Args:
            move: standard deviation of the relative move.
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
    """Elements of a floating input that equal a scalar argument, its negative or a neighbour: comparisons change there."""
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
    """A copy, of which one element is moved far enough to be seen."""
    moved = array.copy()
    one = flat(moved)
    with np.errstate(all="ignore"):
        one[place] += abs(one[place]) / 64 + (1e-3 if one[place] == 0 else 0.0)
    return moved
