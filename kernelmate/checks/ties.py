"""Rounding ties: integer output elements that may have either of two values, since the rounded quantity is near a tie.

`rint(x / scale)` of a value that lies within rounding error of a half may be either neighbour, `x * w > t` either
truth, and the position of the larger of two that are nearly equal either place. The reference itself shows which
elements these are: their values change when its floating inputs are perturbed by a few units in the last place, or when
it computes in the kernel's type. If an element also changes under much smaller perturbations, the value is an exact
tie, and only the reference's own answer is right.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernelmate.checks.evaluations import Expected, Reference, evaluations
from kernelmate.checks.perturbation import PerturbedInputs, movable
from kernelmate.checks.precision import Array, Arrays, generator, module_of, unit_roundoff, wide
from kernelmate.checks.reference_messages import Call
from kernelmate.records import Contract, Size

DRAWS, FEWEST = 24, 6
"""Maximum and minimum number of perturbed evaluations; 24 rarely miss an element that changes in half of them."""

UNITS = 4.0
"""Unit roundoffs by which inputs are perturbed."""

EXACT_MOVE, EXACT_DRAWS = 2.0**-46, 3
"""Relative perturbation that changes only exact ties, and the number of evaluations with it."""

MOST_SHARE, MOST_FEW = 0.01, 4
"""Maximum share, and number, of differing elements that near ties may explain; more indicate another rounding."""

Pair = tuple[Array, Array]


def few(got: Array, want: Array) -> bool:
    """Returns True if so few elements differ that near ties may explain them."""
    different = int((got != want).sum())
    return different <= max(MOST_FEW, MOST_SHARE * got.size)


def measured(
    contract: Contract, reference: Reference, arrays: Arrays, size: Size, want: Expected, names: list[str],
    seed: tuple[int, ...], draws: int,
) -> dict[str, Pair]:  # fmt: skip
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


def wanted(got: Array, want: Array, pair: Pair | None) -> Array:
    """Returns the expected output; for an element with two right values, the value of `got` if it is one of them."""
    if pair is None:
        return want
    either = (got == pair[0]) | (got == pair[1])
    return module_of(want).where(either, got.astype(want.dtype), want)  # type: ignore[no-any-return]
