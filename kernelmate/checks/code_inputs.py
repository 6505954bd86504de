"""Inputs suggested by a version's code: constants that it compares with and its baseline does not, and type limits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from kernelmate.checks.capacity import BEYOND, has_new_limits
from kernelmate.checks.case_launches import CHEAP_ELEMENTS, elements_of
from kernelmate.checks.guards.lost_bits import has_arithmetic
from kernelmate.checks.positions import (
    ArgumentUses,
    ConstantComparison,
    comparisons_of,
    kept_ranges,
    rounded_factors,
    uses_of,
)
from kernelmate.checks.precision import is_float, is_inexact
from kernelmate.checks.scalars import nearby
from kernelmate.checks.size_plan import PlannedSize
from kernelmate.checks.styles import InputStyle, is_free
from kernelmate.errors import ContractError
from kernelmate.records import Argument, Contract, Size, Version
from kernelmate.source import argument_shapes, launch_shape, numpy_dtype, scalar_value

MOST_CONSTANTS = 16
"""Maximum number of constants planted in one array."""

MOST_SCALARS = 4
"""Maximum number of launches with other scalars."""

MOST_COMBINED = 6
"""Maximum number of sizes selected by conditions at which values that the code compares with are tried as well."""

FARTHEST = 16
"""Largest multiple of a scalar's value up to which constants are tried for it."""

SMALL = 8
"""Largest magnitude of integers that ordinary draws contain with sufficient frequency."""

MOST_EQUAL = 1 << 20
"""Maximum number of elements over all arrays at which equal integers are tried, and any style if no array is floating.
"""

WIDE_BITS = 0x13579BDF_02468ACE
"""Bits of a scalar that no narrower type holds, and whose halves differ."""

_NARROWING = re.compile(
    r"\bcvt\.(?:\w+\.)*f(?:16|32|64)\.[su](?:8|16|32|64)\b|\b(?:add|sub|mul|mad)\.(?:\w+\.)*[su]16\b|\.sat\b"
    r"|\bcvt\.s(?:32|64)\.s(?:8|16)\s+%\w+, %r"
)
"""PTX instructions that lose high bits of large integers but not of small ones."""

_ROUNDING = re.compile(r"\bcvt\.r[nzmp]i\b")
"""PTX conversions of floating numbers to whole ones, which jump at whole numbers or halfway between them."""

WHOLE = 0.5, 1.0, 2.0, 3.0
"""Numbers at which roundings jump; the numbers halfway between them, and the negative ones, are planted with them."""

TIES = 0.5, 1.5, 2.5
"""Numbers that are planted, after division by each constant factor before a rounding, in a launch of their own."""

WARP = 32

SMALL_CONSTANT, SMALL_SCALE = 1e-5, 1e-10
"""Bound of tiny constants, and the scale of inputs whose products and squares are below them and still normal."""

_COMPARED_FLOATS = re.compile(r"\bsetp\.\w+\.(?:ftz\.)?f32\s+%\w+, %\w+, 0f([0-9A-F]{8});")

_ORDERING = re.compile(r"\bsetp\.\w+\.(?:ftz\.)?(?:bf16|f16|f32|f64)\b")
"""PTX comparisons of floating numbers, which decide between equal ones too."""

_CHOOSING = re.compile(r"\b(?:min|max)\.(?:[\w:]+\.)*(?:bf16x?2?|f16x?2?|f32|f64)\b|" + _ORDERING.pattern)
"""PTX operations that choose among floating numbers, so that a wrong one to begin with may show."""

_LIMITS = re.compile(r"\bsetp\.\w+\.[su](?:32|64)\s+%\w+(?:\|%\w+)?, %\w+, (-?\d+);")
"""PTX comparisons of integers with a constant, as of a loop's counter with its limit."""

_COUNTING = re.compile(r"\b(?:atom|red)\.\S*add\b|\b(?:atom|red)\.\S*add\.")


def suggested_styles(
    contract: Contract, version: Version, baseline: Version, scalars: Iterable[str], wide: Sequence[str] = ()
) -> tuple[InputStyle, ...]:
    """Returns input styles for one launch each, suggested by code of a candidate that its baseline lacks.

    Args:
        contract: the baseline's contract.
        version: the version under judgement.
        baseline: the version that it was made from.
        scalars: arguments that may have other values than the contract's.
        wide: integer ones among them that may have values of any size.
    """
    own = [one for one in comparisons_of(version, contract) if one not in frozenset(comparisons_of(baseline, contract))]
    texts = version.compiled.ptx, baseline.compiled.ptx
    whole = WHOLE if texts[0] != texts[1] and any(_ROUNDING.search(text) for text in texts) else ()
    used = uses_of(baseline, contract)
    constants, ties = (
        tuple(
            (name, values)
            for name, values in _constants(contract, *given)
            if values and name not in _bound(contract, used)
        )
        for given in ((own, whole), ((), _scaled_ties(version, baseline)))
    )
    found = [
        InputStyle("normal", stress=True, constants=planted)
        for planted in (constants, ties if whole else ())
        if planted
    ]
    found += _scalar_styles(contract, own, frozenset(scalars))
    reaching = frozenset(scalars) & (used.addresses | used.loops)
    found += _enlarged(contract, reaching) * has_new_limits(version, baseline)
    kept = kept_ranges(version, contract) - kept_ranges(baseline, contract)
    found += _past_ranges(contract, frozenset(scalars), kept)
    if wide and texts[0] != texts[1]:
        given = (tuple((name, _wide(contract, name, turned)) for name in wide) for turned in (False, True))
        found += [InputStyle("normal", stress=True, given=values) for values in dict.fromkeys(given)]
    found += _chained(contract, version, baseline, used)
    if contract.inputs is not None:
        return (*found, *_rearranged(contract, version, texts))
    free = [numpy_dtype(a.dtype) for a in contract.args if is_free(a)]
    integers = any(dtype.kind in "iu" for dtype in free)
    ranged = any((a.distribution or "").lstrip().startswith("integers") for a in contract.args)
    if integers and (_more(_NARROWING, *texts) or (texts[0] != texts[1] and _sums_are_wide(contract))):
        found.append(InputStyle("integers", stress=True, high=True))
        if any(dtype.kind == "i" for dtype in free):
            found.append(InputStyle("integers", stress=True, low=True))
    if (integers or ranged) and texts[0] != texts[1] and _COUNTING.search(texts[0]):
        found.append(InputStyle("integers", stress=True, equal=True))
    drawn = [(a.distribution or "").lstrip().startswith(("normal", "uniform")) for a in contract.args]
    if any(drawn) and sorted(_ORDERING.findall(texts[0])) != sorted(_ORDERING.findall(texts[1])):
        found.append(InputStyle("repeated", stress=True))
    if any(is_float(dtype) for dtype in free) and _has_positions(contract):
        found.append(InputStyle("late", stress=True))
    chosen = _has_positions(contract) and texts[0] != texts[1] and not has_arithmetic(texts[1])
    if chosen and (any(drawn) or any(map(is_float, free))):
        found.append(InputStyle("close", stress=True))
    if texts[0] != texts[1] and _selects(contract):
        found.append(InputStyle("strided", stress=True, strides=_strides(version)))
    if texts[0] != texts[1] and any(map(is_float, free)) and _CHOOSING.search(texts[0]):
        found.append(InputStyle("sides", stress=True))
    if any(is_float(dtype) and dtype.itemsize > 2 for dtype in free) and _small_numbers(*texts):
        found.append(InputStyle("normal", SMALL_SCALE, stress=True))
    return tuple(found)


def with_styles(
    contract: Contract,
    sizes: Sequence[PlannedSize],
    styles: Sequence[InputStyle],
    may_try: Callable[[InputStyle, Size], bool],
) -> list[PlannedSize]:
    """Adds each style to the largest size at which it is affordable and can reveal an error.

    Values that code compares with are also tried at sizes that a condition of it selects, since it may ask for both.

    Args:
        contract: gives the shapes.
        sizes: the plan.
        styles: from `suggested_styles`.
        may_try: False for a style that cannot be launched at a size.
    """
    held = [_extent(contract, one) for one in sizes]
    whole = not any(is_inexact(numpy_dtype(a.dtype)) for a in contract.args if a.shape is not None)
    planned = list(sizes)
    for style in styles:
        most = MOST_EQUAL if style.equal or whole else CHEAP_ELEMENTS
        first = {"late": 1, "strided": 1, "close": 1}.get(
            style.name, 2 if style.equal else 3 if style.high or style.low else 0
        )
        fitting = [
            place for place, extent in enumerate(held) if 1 <= extent[0] <= most and may_try(style, sizes[place].size)
        ]
        longest = [(held[place][first], held[place][0], -place) for place in fitting]
        place = -max(longest)[2] if longest else None
        if place is not None:
            planned[place] = planned[place]._replace(styles=(*planned[place].styles, style))
        if style.given or style.constants:
            chosen = [other for other in fitting if other != place and sizes[other].selected]
            for other in chosen[:MOST_COMBINED]:
                planned[other] = planned[other]._replace(styles=(*planned[other].styles, style))
    return planned


def _chained(contract: Contract, version: Version, baseline: Version, used: ArgumentUses) -> list[InputStyle]:
    """Returns a style with integers for which loops take many steps, if code limits such a loop by a constant.

    Elements that are addresses as well are left out: they are offsets, not numbers.
    """
    mine, theirs = (frozenset(_LIMITS.findall(one.compiled.ptx)) for one in (version, baseline))
    names = tuple(
        a.name
        for a in contract.args
        if a.direction in ("in", "inout") and a.name in used.loops - used.addresses and a.shape
        and numpy_dtype(a.dtype).kind in "iu" and (is_free(a) or (a.distribution or "").lstrip().startswith("integers"))
    )  # fmt: skip
    if contract.inputs is not None or not names or mine <= theirs:
        return []
    return [InputStyle("normal", stress=True, chained=names)]


def _bound(contract: Contract, used: ArgumentUses) -> frozenset[str]:
    """Returns the integer arrays of an `inputs` function that the baseline does not only compute with.

    Such arrays may be indices, offsets, lengths or flags, which are related to each other.
    """
    if contract.inputs is None:
        return frozenset()
    whole = {a.name for a in contract.args if a.shape is not None and not is_inexact(numpy_dtype(a.dtype))}
    return (used.addresses | used.loops | used.guards) & whole


def _rearranged(contract: Contract, version: Version, texts: tuple[str, str]) -> list[InputStyle]:
    """Returns styles that rearrange, or repeat, floating values which an `inputs` function made."""
    if texts[0] == texts[1] or not any(is_free(a) and is_float(numpy_dtype(a.dtype)) for a in contract.args):
        return []
    found = []
    if sorted(_ORDERING.findall(texts[0])) != sorted(_ORDERING.findall(texts[1])) or _has_positions(contract):
        found.append(InputStyle("repeated", stress=True))
    if _has_positions(contract) and not has_arithmetic(texts[1]):
        found.append(InputStyle("close", stress=True))
    if _selects(contract):
        found.append(InputStyle("strided", stress=True, strides=_strides(version)))
    return found


def _extent(contract: Contract, planned: PlannedSize) -> tuple[int, int, int, int]:
    """Returns, at a size, the elements of all arrays, the longest floating-point row, and the most integers in an input and a row."""
    try:
        shapes = argument_shapes(contract, planned.size)
    except ContractError:
        return 0, 0, 0, 0
    inputs = [a for a in contract.args if a.direction == "in" and shapes.get(a.name)]
    whole = [shapes[a.name] for a in inputs if not is_inexact(numpy_dtype(a.dtype))]
    rows = [shapes[a.name][-1] for a in inputs if is_inexact(numpy_dtype(a.dtype))]
    most, longest = max(map(math.prod, whole), default=0), max((shape[-1] for shape in whole), default=0)
    return elements_of(shapes.values()), max(rows, default=0), most, longest


def _sums_are_wide(contract: Contract) -> bool:
    """Returns True if an output has 64 bits, so that sums of narrower integers may exceed 32 bits."""
    outputs = [numpy_dtype(a.dtype) for a in contract.args if a.direction in ("out", "inout")]
    return any(dtype.kind in "iu" and dtype.itemsize == 8 for dtype in outputs)


def _has_positions(contract: Contract) -> bool:
    """Returns True if an output may hold positions or counts."""
    outputs = [numpy_dtype(a.dtype) for a in contract.args if a.direction in ("out", "inout")]
    return any(dtype.kind in "iu" and dtype.itemsize >= 4 for dtype in outputs)


def _scaled_ties(version: Version, baseline: Version) -> tuple[float, ...]:
    """Returns numbers whose products with a constant factor are rounding ties."""
    compiled = version.compiled, baseline.compiled
    factors = {factor for one in compiled for factor in rounded_factors(one.ptx, one.lowered_name)}
    return tuple(dict.fromkeys(number / factor for factor in sorted(factors) for number in TIES))


def _selects(contract: Contract) -> bool:
    """Returns True if floating inputs of several elements in a row make an output of fewer elements."""
    try:
        shapes = argument_shapes(contract, contract.sizes[0])
    except ContractError:
        return False
    inputs = [a for a in contract.args if a.direction == "in" and is_inexact(numpy_dtype(a.dtype)) and a.name in shapes]
    outputs = [math.prod(shapes[a.name]) for a in contract.args if a.direction in ("out", "inout") and a.name in shapes]
    return bool(outputs) and any(len(shapes[a.name]) > 1 and math.prod(shapes[a.name]) > min(outputs) for a in inputs)


def _strides(version: Version) -> tuple[int, ...]:
    """Returns distances at which one lane, and one thread of a block, takes the elements of a row."""
    try:
        threads = launch_shape(version.contract, version.contract.sizes[0]).threads
    except ContractError:
        return (WARP,)
    return (WARP, threads) if threads > WARP else (WARP,)


def _small_numbers(mine: str, theirs: str) -> bool:
    """Returns True if code compares floating numbers with a tiny constant that its baseline does not have."""
    new = set(_COMPARED_FLOATS.findall(mine)) - set(_COMPARED_FLOATS.findall(theirs))
    values = np.array([int(word, 16) for word in new], np.uint32).view(np.float32)
    return bool(((values > 0) & (values < SMALL_CONSTANT)).any())


def _more(pattern: re.Pattern[str], mine: str, theirs: str) -> bool:
    return len(pattern.findall(mine)) > len(pattern.findall(theirs))


def _constants(
    contract: Contract, own: Sequence[ConstantComparison], whole: Sequence[float]
) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yields each array with the values that its elements are compared with, as its type holds them.

    Floating arrays also get the numbers `whole`.
    """
    for argument in contract.args:
        if argument.shape is None or argument.direction in ("out", "scratch"):
            continue
        values = {_fitted(argument, one.value) for one in own if one.name == argument.name}
        known = sorted(v for v in values if v is not None)[:MOST_CONSTANTS]
        dtype = numpy_dtype(argument.dtype)
        known += [v for v in whole if dtype.kind == "f" and dtype.itemsize > 2 and v not in known]
        yield argument.name, tuple(known)


def _fitted(argument: Argument, value: float) -> float | None:
    """Returns a constant as a value of an array's type; None if the type cannot hold it or draws contain it."""
    dtype = numpy_dtype(argument.dtype)
    if dtype.itemsize <= 2 or dtype.kind not in "iuf":
        return None
    if dtype.kind == "f":
        known = float(_bits(value) if isinstance(value, int) else value)
        return known if math.isfinite(known) and known and abs(known) <= np.finfo(dtype).max else None
    if not math.isfinite(value) or abs(value) >= 2**63:
        return None
    whole = int(np.array(round(value), np.int64).astype(dtype))
    near_power = any((abs(whole) + step).bit_count() <= 1 for step in (-1, 0, 1))
    return None if abs(whole) <= SMALL or near_power or whole >= 2**63 else whole


def _bits(pattern: int) -> float:
    """Returns the float32 with the given bit pattern; NaN for integers that are not a plausible pattern."""
    if not -(2**31) <= pattern < 2**32 or abs(pattern) < 2**23:
        return math.nan
    return float(np.array(pattern & 0xFFFFFFFF, np.uint32).view(np.float32))


def _wide(contract: Contract, name: str, turned: bool) -> int:
    """Returns a value of a scalar's sign with significant bits in each of its bytes.

    `turned` gives the other bits of an unsigned scalar, its highest one among them.
    """
    argument = next(a for a in contract.args if a.name == name)
    dtype = numpy_dtype(argument.dtype)
    value = WIDE_BITS >> (64 - 8 * dtype.itemsize)
    if dtype.kind == "u" and turned:
        return int(np.iinfo(dtype).max) - value
    return -value if scalar_value(argument, {}) < 0 else value


def _scalar_styles(contract: Contract, own: Sequence[ConstantComparison], names: frozenset[str]) -> list[InputStyle]:
    """Returns styles with a scalar beyond each constant that it is compared with, or equal to it."""
    known: Mapping[str, Argument] = {a.name: a for a in contract.args if a.name in names and a.value is not None}
    found: list[InputStyle] = []
    for one in own:
        argument = known.get(one.name)
        value = None if argument is None else _beyond(argument, one)
        style = None if value is None else InputStyle("normal", stress=True, given=((one.name, value),))
        if style is not None and style not in found and len(found) < MOST_SCALARS:
            found.append(style)
    return found


def _enlarged(contract: Contract, names: frozenset[str]) -> list[InputStyle]:
    """Returns styles with an integer scalar several times as large, as a radius that exceeds the halo of a tile.

    `names` are scalars that bound loops or decide addresses.
    """
    usual = {
        a.name: scalar_value(a, {})
        for a in contract.args
        if a.name in names and a.value is not None and "int" in a.dtype
    }
    given = (((name, BEYOND * value + math.copysign(1, value)),) for name, value in usual.items() if abs(value) > 1)
    return [InputStyle("normal", stress=True, given=one) for one in given][:MOST_SCALARS]


def _past_ranges(contract: Contract, names: frozenset[str], kept: Iterable[tuple[str, int]]) -> list[InputStyle]:
    """Returns styles with a scalar just past the range that code keeps of it."""
    known = {a.name: a for a in contract.args if a.name in names and a.value is not None and "int" in a.dtype}
    found = []
    for name, number in sorted(kept, key=lambda one: one[::-1]):
        argument = known.get(name)
        fits = argument is not None and number < np.iinfo(numpy_dtype(argument.dtype)).max
        if argument is not None and fits and 0 < scalar_value(argument, {}) <= number:
            found.append(InputStyle("normal", stress=True, given=((name, number + 1),)))
    return found[:MOST_SCALARS]


def _beyond(argument: Argument, compared: ConstantComparison) -> float | None:
    """Returns a scalar value across a compared constant; None if it is too far, or if variation tries it anyway."""
    usual, constant = scalar_value(argument, {}), compared.value
    whole = not is_float(numpy_dtype(argument.dtype))
    if not math.isfinite(constant) or usual * constant <= 0 or abs(constant) > FARTHEST * (abs(usual) + whole):
        return None
    outwards = abs(usual) <= abs(constant)
    step = math.copysign(1, constant) if whole else constant / 4
    value = constant if compared.equal else constant + step if outwards else constant - step
    if value == usual or value * usual <= 0 or (not whole and abs(usual) < 1 <= abs(value)):
        return None
    return None if whole and value in nearby(int(usual)) else value
