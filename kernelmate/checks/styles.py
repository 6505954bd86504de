"""Styles of random inputs for arguments without a distribution, and milder styles for baselines that fail on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernelmate.checks.precision import is_float, is_inexact
from kernelmate.checks.values import LARGEST_PLANTED, MILDER
from kernelmate.records import Argument, Contract, Size
from kernelmate.source import numpy_dtype


@dataclass(frozen=True, slots=True)
class InputStyle:
    """A style of random inputs for arguments without a declared distribution.

    Attributes:
        name: `normal`, `uniform` (symmetric about zero), `zeros`, `denormals`, `mixed` (rows of different kinds of
            values), `offset` (a large mean), `patterns` (all bit patterns of a narrow type), `late` (rows of negative
            numbers with positive ones near their ends), `strided` (the largest numbers of a row at equal distances),
            `sides` (minus infinity in the first half of the columns, infinity in the others), or `integers` (over their whole range; floats as in `normal`).
        scale: factor of all values.
        specials: values planted at a few random places.
        stress: True for inputs that not every kernel must support: failures count against a candidate only if the
            baseline passes, and are otherwise only reported.
        vary: scalars with values other than the contract's.
        zeros: True if integer scalars of 1 may become 0.
        negative: True if small integers have either sign, which requires that none is used as an index.
        planted: True if some elements equal scalar arguments.
        milder: number of steps down from the hardest values of `mixed`.
        bits: bits of the largest magnitude in `integers`.
        signed: True includes negative integers.
        positions: integer arguments whose values are indices below `bound`.
        bound: the size that bounds indices, by rank among the distinct sizes in descending order.
        wary: True if the emulator launches on these inputs before a GPU does, since they may cause bad addresses.
        high: True if integers are positive and near the largest; in `offset`, if floats are positive.
        low: True if integers are the smallest of their type, whose products are the largest; in `offset`, if floats
            are negative.
        equal: True if all integers of an array are equal, also of one whose range is declared.
        constants: values planted in arrays, by array name.
        alone: True if planted values come without their neighbours, which a rounding before a comparison or a
            conversion moves across it, so that the reference and a right kernel may disagree.
        given: values of scalar arguments, by name.
        chained: integer arrays in which values are planted for which common loops take most steps.
        strides: of `strided`, the distances in elements, which rows take in turn.
    """

    name: str
    scale: float = 1.0
    specials: tuple[float, ...] = ()
    stress: bool = False
    vary: tuple[str, ...] = ()
    zeros: bool = False
    negative: bool = False
    planted: bool = False
    milder: int = 0
    bits: int = 64
    signed: bool = True
    positions: tuple[str, ...] = ()
    bound: int = 0
    wary: bool = field(default=False, compare=False)
    high: bool = False
    low: bool = False
    equal: bool = False
    constants: tuple[tuple[str, tuple[float, ...]], ...] = ()
    alone: bool = False
    given: tuple[tuple[str, float], ...] = ()
    strides: tuple[int, ...] = ()
    chained: tuple[str, ...] = ()

    @property
    def plants_nan(self) -> bool:
        """Returns True if the inputs contain NaN."""
        return bool(self.specials) and bool(np.isnan(self.specials[0]))

    def __str__(self) -> str:
        if self.specials:
            return "NaN among the inputs" if self.plants_nan else "infinities among the inputs"
        if self.name in ("zeros", "denormals"):
            return f"inputs that are all {self.name}"
        if self.name == "integers":
            whole = "" if self.equal or self.low else " over their whole range"
            most = whole if self.bits >= 64 else f" of up to {self.bits} bits"
            kind = ", all near the largest" * self.high + ", equal in each array" * self.equal
            kind += ", all of them the smallest" * self.low
            return f"integer inputs{most}{kind}" + ("" if self.signed else ", none of them negative")
        if self.name == "mixed":
            return "inputs of mixed kinds (" + ", ".join(MILDER[self.milder]) + ")"
        if self.name == "offset":
            return "inputs with a large mean"
        if self.name == "patterns":
            return "inputs of all patterns of bits"
        if self.name == "late":
            return "inputs whose rows are negative but for their ends"
        if self.name == "strided":
            apart = " or ".join(map(str, self.strides))
            return f"inputs whose largest elements in a row are {apart} columns apart"
        if self.name == "sides":
            return "inputs that are minus infinity on one side and infinity on the other"
        if self.name == "close":
            return "inputs whose largest or smallest elements in a row differ in their last bits"
        if self.name == "repeated":
            return "inputs with equal elements in a row"
        return f"{self.name} inputs" + (f" times {self.scale:g}" if self.scale != 1 else "") + self._planted_text()

    def _planted_text(self) -> str:
        if self.chained:
            return " with integers among them for which loops take many steps"
        about = " with values equal to scalars among them" if self.planted else ""
        if not self.constants:
            return about
        neighbours = "" if self.alone else ", and their neighbours,"
        return about + f" with values at which the code branches or rounds{neighbours} among them"


NORMAL = InputStyle("normal")
UNIFORM = InputStyle("uniform")
NEGATIVE_NAN = float(np.copysign(np.nan, -1))
PAYLOAD_NAN = float(np.uint64(0x7FFB_5A5A_4000_0000).view(np.float64))
"""NaN with a payload that float32 can hold."""
FULL_NAN = float(np.uint64(0x7FFF_FFFF_FFFF_FFFF).view(np.float64))
"""NaN with all value bits set, as a GPU's arithmetic produces; adding 1 to its bits gives a finite number."""

STRESS_STYLES = (
    InputStyle("normal", 1e-3, stress=True),
    InputStyle("normal", 1e3, stress=True),
    InputStyle("zeros", stress=True),
    InputStyle("denormals", stress=True),
    InputStyle("normal", specials=(np.nan, NEGATIVE_NAN, PAYLOAD_NAN, FULL_NAN), stress=True),
    InputStyle("normal", specials=(np.inf, -np.inf), stress=True),
    InputStyle("offset", stress=True),
    InputStyle("mixed", stress=True),
)
MADE_STYLES = InputStyle("normal", 1e3, stress=True), InputStyle("zeros", stress=True)
"""Changes of floating arrays that an `inputs` function makes, which keep signs, order, symmetry and sparsity."""
PATTERNS = InputStyle("patterns", stress=True)
WIDE_INTEGERS = InputStyle("integers", stress=True)
COUNTED = InputStyle("offset", stress=True, high=True), InputStyle("offset", stress=True, low=True)
"""Inputs that are all far above or all far below zero, so that most conditions hold for all of them."""
LARGEST_SUMS = InputStyle("integers", stress=True, high=True), InputStyle("integers", stress=True, low=True)
"""Integers that are all near the largest or all the smallest, of which sums and sums of products are the largest."""
ONE_MAGNITUDE = 2
"""Value of `InputStyle.milder` for which no row mixes magnitudes far apart, whose product depends on its order."""
SMALLEST = -1
"""Value of `InputStyle.bound` that selects the smallest size."""
NARROWER = (31, 15, 10)
"""Bits of the largest magnitude, tried in order if a baseline and its reference disagree on larger integers."""


def styles_of(contract: Contract) -> tuple[InputStyle, ...]:
    """Returns the input styles for this contract beyond `NORMAL`; declared distributions are never varied."""
    free = [numpy_dtype(a.dtype) for a in contract.args if is_free(a)]
    if contract.inputs is not None:
        return MADE_STYLES if any(map(is_float, free)) else ()
    floats = (UNIFORM, *STRESS_STYLES) if any(is_inexact(dtype) for dtype in free) else ()
    narrow = (PATTERNS,) if any(is_float(dtype) and dtype.itemsize <= 2 for dtype in free) else ()
    integers = (WIDE_INTEGERS,) if any(dtype.kind in "iu" for dtype in free) else ()
    return (*narrow, *floats, *integers)


def narrow_inputs(contract: Contract) -> list[str]:
    """Returns the names of free 16-bit inputs, for which all 65536 values may be tried."""
    if contract.inputs is not None:
        return []
    dtypes = {a.name: numpy_dtype(a.dtype) for a in contract.args if is_free(a)}
    return [name for name, dtype in dtypes.items() if dtype.itemsize == 2 and (is_float(dtype) or dtype.kind in "iu")]


def is_free(argument: Argument) -> bool:
    """Returns True for an input without a declared distribution."""
    return argument.direction in ("in", "inout") and argument.distribution is None


def _bounds(size: Size) -> list[int]:
    """Returns the distinct sizes, the largest first; at least 1 each."""
    return sorted({max(value, 1) for value in size.values()}, reverse=True) or [1]


def bound_of(size: Size, style: InputStyle) -> int:
    """Returns the exclusive upper bound of index values."""
    bounds = _bounds(size)
    return bounds[min(style.bound, len(bounds) - 1)]


def milder_style(style: InputStyle, size: Size, free: Sequence[str], *, failed: bool) -> InputStyle | None:
    """Returns the next milder style if the baseline fails on this one; None if there is none.

    Integers become indices if a launch or the reference failed, and become smaller if the output was wrong.

    Args:
        style: the style that was tried.
        size: the size of the launch.
        free: integer arguments that may hold indices.
        failed: True if a launch or the reference gave no output.
    """
    if style.name == "mixed" and style.milder + 1 < len(MILDER):
        return replace(style, milder=style.milder + 1)
    if style.constants:
        mild = ((name, tuple(v for v in values if abs(v) <= LARGEST_PLANTED)) for name, values in style.constants)
        kept = tuple((name, values) for name, values in mild if values)
        if kept != style.constants:
            return replace(style, constants=kept) if kept else None
        return None if style.alone or failed else replace(style, alone=True)
    if style.name != "integers":
        return None
    if failed:
        if not style.positions:
            return replace(style, positions=tuple(free)) if free else None
        more = style.bound != SMALLEST and style.bound + 1 < len(_bounds(size))
        return replace(style, bound=style.bound + 1) if more else None
    if style.signed:
        return replace(style, signed=False)
    return next((replace(style, bits=bits, signed=True) for bits in NARROWER if bits < style.bits), None)
