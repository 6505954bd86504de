"""Detects index arithmetic that is wrong in arrays larger than any that are launched whole.

Such are indices in 32 bits where the baseline computes them in 64, indices in float32 (exact below 2^24), and divisions by
approximate reciprocals or by factors that are exact in a range only. Some blocks of a launch with billions of elements
run in the emulator, on arrays whose contents repeat (`backends/emulator/far_blocks.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.emulator.backend import decoded_of, launch_failure
from kernelmate.backends.emulator.far_blocks import (
    MOST_BYTES,
    PERIOD,
    FarResult,
    has_atomics,
    is_foldable,
    run_blocks,
)
from kernelmate.backends.emulator.link import LinkRefused
from kernelmate.backends.emulator.operands import PtxError
from kernelmate.checks.causes import size_text
from kernelmate.checks.precision import Array, is_inexact
from kernelmate.errors import ContractError
from kernelmate.records import Contract, Finding, FindingCode, Size, Target, Version
from kernelmate.source import argument_shapes, launch_shape, numpy_dtype, scalar_values, size_allowed

WIDE_ELEMENTS = (1 << 32) + (1 << 12), (1 << 31) + (1 << 12)
"""Elements of the largest array in which an index of 32 bits wraps, and those where only a signed one does."""

FAR_ELEMENTS = 3 << 29
"""Elements that indices of 32 bits reach, and those in float32 do not."""

MOST_TOTAL_BYTES = 96 << 30
"""Maximum bytes of all arrays: a GPU's memory holds no more."""

OTHERS = 64, 37
"""Values to which the sizes that do not grow are reduced: a multiple of vectors, and an odd one."""

BLOCKS = 8

WRONG_CODES = frozenset(
    {
        FindingCode.INDEX_OVERFLOW,
        FindingCode.OUT_OF_BOUNDS_READ,
        FindingCode.OUT_OF_BOUNDS_WRITE,
        FindingCode.ILLEGAL_ADDRESS,
    }
)

_WIDE = re.compile(
    r"\b(?:mul|mad)\.(?:lo\.[su]64|wide\.[su]32)\s+%\w+, %\w+, (?:%\w+|1[7-9]\b|[2-9]\d\b|\d{3,})"
    r"|\bshl\.b64\s+%\w+, %\w+, (?:[5-9]|\d\d);"
)
"""PTX of products in 64 bits, but for those of an index and an element's size."""

_FROM_FLOAT = re.compile(r"\bcvt\.r[zmpn]i\.(?:ftz\.)?[su](?:32|64)\.f32\b")
_TO_FLOAT = re.compile(r"\bcvt\.r\w\.f32\.[su](?:32|64)\b")
_HIGH_PRODUCT = re.compile(r"\bmul\.hi\.[su]32\b|\bshr\.u64\s+%\w+, %\w+, (?:3[2-9]|[45]\d|6[0-3]);")


def find(version: Version, baseline: Version, contract: Contract, target: Target) -> Iterator[Finding]:
    """Yields an error with the unit's line for index arithmetic that is wrong where the baseline's is right.

    Args:
        version: the version under judgement.
        baseline: the version that it was made from.
        contract: the contract in force.
        target: the GPU to emulate.
    """
    texts = version.compiled.ptx, baseline.compiled.ptx
    if texts[0] == texts[1] or contract.passing or contract.stages or contract.inputs is not None:
        return
    inexact = all(map(_more, (_FROM_FLOAT, _TO_FLOAT), [texts] * 2)) or _more(_HIGH_PRODUCT, texts)
    for elements, wanted in ((WIDE_ELEMENTS, bool(_WIDE.search(texts[1]))), ((FAR_ELEMENTS,), inexact)):
        for size in _sizes(contract, elements) if wanted else ():
            found = _at(version, baseline, contract, size, target, values=inexact)
            if found is not None:
                yield found
                return


def _more(pattern: re.Pattern[str], texts: tuple[str, str]) -> bool:
    return len(pattern.findall(texts[0])) > len(pattern.findall(texts[1]))


def _sizes(contract: Contract, wanted: Sequence[int]) -> Iterator[Size]:
    """Yields for each name, and for other values of the other names, the first size with so many elements."""
    listed = contract.sizes[0] if contract.sizes else {}
    for name in listed:
        sizes = (
            size
            for few in OTHERS
            for elements in wanted
            if (size := _grown(contract, {n: min(v, few) for n, v in listed.items()}, name, elements)) is not None
        )
        yield from sizes


def _grown(contract: Contract, base: Size, name: str, elements: int) -> Size | None:
    """Returns a size with so many elements in an array, by one name; None if it cannot be launched."""
    low, high = 1, 1 << 33
    while low < high:
        middle = (low + high) // 2
        if _largest(contract, {**base, name: middle}) >= elements:
            high = middle
        else:
            low = middle + 1
    return next(
        (
            size
            for size in ({**base, name: low}, {**base, name: -(-low // 64) * 64})
            if _largest(contract, size) >= elements and _launchable(contract, size)
        ),
        None,
    )


def _largest(contract: Contract, size: Size) -> int:
    try:
        return max(math.prod(shape) for shape in argument_shapes(contract, size).values())
    except (ContractError, ValueError):
        return 0


def _launchable(contract: Contract, size: Size) -> bool:
    try:
        held = _bytes(contract, size).values()
        scalar_values(contract, size)
        launch_shape(contract, size)
        return size_allowed(contract, size) and sum(held) <= MOST_TOTAL_BYTES and max(held) <= MOST_BYTES
    except ContractError:
        return False


def _bytes(contract: Contract, size: Size) -> dict[str, int]:
    shapes = argument_shapes(contract, size)
    return {
        a.name: math.prod(shapes[a.name]) * numpy_dtype(a.dtype).itemsize for a in contract.args if a.shape is not None
    }


def _at(
    version: Version, baseline: Version, contract: Contract, size: Size, target: Target, *, values: bool
) -> Finding | None:
    """Returns an error of the version at a size, if the baseline has none there."""
    mine = _result(version, contract, size, target)
    if mine is None:
        return None
    wrong = next((f for f in mine.findings if f.severity == "error" and f.code in WRONG_CODES), None)
    if wrong is None and not (values and mine.ended):
        return None
    theirs = _result(baseline, contract, size, target)
    if theirs is None or any(finding.severity == "error" for finding in theirs.findings):
        return None
    where = f"at {size_text(size)}, with {_largest(contract, size)} elements in an array"
    if wrong is not None:
        remedy = "" if wrong.code is FindingCode.INDEX_OVERFLOW else "; compute indices in 64 bits"
        message = f"{where}: {wrong.message}{remedy}, or bound the size by `require`"
        return Finding(wrong.code, "error", message, line=wrong.line, column=wrong.column, buffer=wrong.buffer)
    other = _different(version, baseline, contract, mine, theirs)
    return None if other is None else Finding(
        FindingCode.WRONG_AT_SIZE, "error",
        f"{where}: {other}; divide and compute indices in integers, by a division that is exact in their whole range, "
        "or bound the size by `require`",
    )  # fmt: skip


def _result(version: Version, contract: Contract, size: Size, target: Target) -> FarResult | None:
    """Returns the result of some blocks at a size; None if they cannot be run by themselves."""
    try:
        decoded = decoded_of(version.compiled.ptx, version.compiled.lowered_name)
        shape = launch_shape(version.contract, size)
    except (LinkRefused, PtxError, ContractError):
        return None
    held, arguments = _bytes(contract, size), list[ArrayArgument | ScalarArgument]()
    scalars = scalar_values(version.contract, size)
    for a in version.contract.args:
        dtype = numpy_dtype(a.dtype)
        if a.shape is None:
            arguments.append(ScalarArgument(a.name, np.asarray(scalars[a.name]).astype(dtype)[()]))
        else:
            count = min(held[a.name], PERIOD // dtype.itemsize * dtype.itemsize) // dtype.itemsize
            arguments.append(ArrayArgument(a.name, _content(a.name, dtype, count), written=a.direction != "in"))
    run = Run(shape, tuple(arguments), count=False)
    if not is_foldable(decoded) or launch_failure(decoded.linked, target, run) is not None:
        return None
    return run_blocks(decoded, target, run, held, _spread(shape.blocks))


def _spread(blocks: int) -> list[int]:
    """Returns the last blocks of a grid, and others from the first on."""
    places = {blocks - 1, blocks - 2, *(blocks * part // (BLOCKS - 2) for part in range(BLOCKS - 2))}
    return sorted(place for place in places if 0 <= place < blocks)


def _content(name: str, dtype: np.dtype[np.generic], count: int) -> Array:
    """Returns contents that both versions get: normal numbers, and integers that are valid indices."""
    rng = np.random.default_rng(list(name.encode()))
    if is_inexact(dtype):
        return rng.standard_normal(count).astype(dtype)
    return rng.integers(0, 2, count).astype(dtype)


def _different(
    version: Version, baseline: Version, contract: Contract, mine: FarResult, theirs: FarResult
) -> str | None:
    """Returns a sentence on an element that both versions wrote with clearly different values."""
    for one in (version, baseline):
        if has_atomics(decoded_of(one.compiled.ptx, one.compiled.lowered_name)):
            return None
    if not theirs.ended:
        return None
    for a in contract.args:
        if a.direction not in ("out", "inout") or a.name not in mine.stored or a.name not in theirs.stored:
            continue
        (places, got), (others, want) = mine.stored[a.name], theirs.stored[a.name]
        both, here, there = np.intersect1d(places, others, return_indices=True)
        wrong = _unlike(got[here], want[there])
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            return f"element {int(both[first])} of {a.name} is {got[here][first]}, and the baseline gives {want[there][first]}"
    return None


def _unlike(got: Array, want: Array) -> Array:
    """Returns the mask of values that rounding cannot explain."""
    if not is_inexact(want.dtype):
        return np.asarray(got != want)
    one, two = got.astype(np.complex128), want.astype(np.complex128)
    finite = np.isfinite(two)
    spread = float(np.std(two[finite])) if finite.any() else 0.0
    with np.errstate(all="ignore"):
        return np.asarray(finite & ~(np.abs(one - two) <= 0.2 * (np.abs(two) + spread)))

