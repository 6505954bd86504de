"""Detects index arithmetic that is wrong in arrays larger than any that are launched whole.

Such are indices in 32 bits where the baseline computes them in 64, indices in float32 (exact below 2^24), and divisions by
approximate reciprocals or by factors that are exact in a range only. Some blocks of a launch with billions of elements
run in the emulator, on arrays whose contents repeat (`backends/emulator/far_blocks.py`).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.emulator.backend import decoded_of, launch_failure
from kernelmate.backends.emulator.far_blocks import (
    MOST_BYTES,
    PERIOD,
    SampledBlocksResult,
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

NEAR_ELEMENTS = 1 << 20
"""Elements of an array at which indices in float32 are exact."""

LESS, MOST = 0.6, 0.8
"""Shares of an array's elements that all blocks store if they store as many as some: too few of them, and nearly all."""

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

_NARROW = re.compile(r"\b(?:mul|mad)\.lo\.[su]32\b|\bshl\.b32\b")
_FROM_FLOAT = re.compile(r"\bcvt\.r[zmpn]i\.(?:ftz\.)?[su](?:32|64)\.f32\b")
_TO_FLOAT = re.compile(r"\bcvt\.r\w\.f32\.[su](?:32|64)\b")
_TRUNCATED = re.compile(r"\bcvt\.[su]32\.[su]64\b|\bmov\.b64\s+\{%|\band\.b64\s+%\w+, %\w+, 42949\d{5}\b")
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
    values = inexact or _more(_TRUNCATED, texts)
    narrower = bool(_WIDE.search(texts[1])) and (values or _more(_NARROW, texts) or _more(_WIDE, texts[::-1]))
    for elements, others, wanted in ((WIDE_ELEMENTS, OTHERS[:1], narrower), ((FAR_ELEMENTS,), OTHERS, inexact)):
        for size in _sizes(contract, elements, others) if wanted else ():
            if not size_allowed(version.contract, size):
                continue  # the version names this bound itself
            found = _at(version, baseline, contract, size, target, values=values)
            if found is not None:
                yield found
                return


def _more(pattern: re.Pattern[str], texts: tuple[str, ...]) -> bool:
    return len(pattern.findall(texts[0])) > len(pattern.findall(texts[1]))


def _sizes(contract: Contract, wanted: Sequence[int], others: Sequence[int] = OTHERS) -> Iterator[Size]:
    """Yields sizes that one name enlarges to `wanted` elements of the largest array; `others` bounds the other names."""
    listed = contract.sizes[0] if contract.sizes else {}
    for name in listed:
        sizes = (
            size
            for few in others
            for elements in wanted
            if (size := _grown(contract, {n: min(v, few) for n, v in listed.items()}, name, elements)) is not None
        )
        yield from sizes


def _grown(contract: Contract, base: Size, name: str, elements: int) -> Size | None:
    """Returns a size in which `name` gives the largest array `elements` elements; None if it cannot be launched."""
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
    """Returns an error of the version at a size, if the baseline has none there; of its `values` only if said."""
    mine = _result(version, contract, size, target)
    if mine is None:
        return None
    wrong = next((f for f in mine.findings if f.severity == "error" and f.code in WRONG_CODES), None)
    if wrong is None and not (values and mine.ended):
        return None
    theirs = _result(baseline, contract, size, target)
    if theirs is None or any(finding.severity == "error" for finding in theirs.findings):
        return None
    where = f"at {size_text(size)}, with {_largest(contract, size):,} elements in an array"
    if wrong is not None:
        remedy = "" if wrong.code is FindingCode.INDEX_OVERFLOW else "; compute indices in 64 bits"
        message = f"{where}: {wrong.message}{remedy}, or bound the size by `require`"
        return Finding(wrong.code, "error", message, line=wrong.line, column=wrong.column, buffer=wrong.buffer)
    if not theirs.ended or any(_combines(one) for one in (version, baseline)):
        return None
    near = functools.cache(lambda: _near(version, contract, target))
    for a in contract.args:
        told = _different(a.name, mine, theirs, near) if a.name in theirs.stored and a.direction != "scratch" else None
        if told is not None:
            message = f"{where}: {told}; compute indices in integers that hold their whole range, or bound the size by `require`"
            return Finding(FindingCode.WRONG_AT_SIZE, "error", message, buffer=a.name)
    return None


def _combines(version: Version) -> bool:
    return has_atomics(decoded_of(version.compiled.ptx, version.compiled.lowered_name))


def _near(version: Version, contract: Contract, target: Target) -> SampledBlocksResult | None:
    """Returns the result of some blocks where indices in 32 bits and in float32 are exact; None if they do not end."""
    size = next(_sizes(contract, (NEAR_ELEMENTS,)), None)
    result = None if size is None else _result(version, contract, size, target)
    return result if result is not None and result.ended else None


def _result(version: Version, contract: Contract, size: Size, target: Target) -> SampledBlocksResult | None:
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
            arguments.append(ScalarArgument(a.name, dtype.type(scalars[a.name])))
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
    name: str, mine: SampledBlocksResult, theirs: SampledBlocksResult, near: Callable[[], SampledBlocksResult | None]
) -> str | None:
    """Returns a sentence on elements of an array that the version stores otherwise than the baseline, or not at all."""
    (others, want), (places, got) = theirs.stored[name], mine.stored.get(name, (np.zeros(0, np.int64),) * 2)
    both, here, there = np.intersect1d(places, others, return_indices=True)
    wrong = _unlike(got[here], want[there])
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        return (
            f"element {int(both[first]):,} of {name} is {got[here][first]}, and the baseline gives {want[there][first]}"
        )
    # Both run the first and the last blocks and some between, so that their last elements lie close together.
    last, reached = int(others.max(initial=0)), int(places.max(initial=0))
    if last > NEAR_ELEMENTS and reached < last // 2:
        return f"it writes no element of {name} beyond {reached:,}"
    # Blocks that do as much as others near the beginning, and less or the same twice far from it, have lost their way.
    less = mine.coverage.get(name, 0.0) < LESS and theirs.coverage[name] > MOST
    twice = mine.shared.get(name, 0) > theirs.shared[name]
    before = near() if less or twice else None
    if before is None or name not in before.stored:
        return None
    if less and before.coverage[name] > MOST:
        return f"most blocks write none of the elements of {name} that are theirs"
    return f"several threads write the same elements of {name}" if twice and not before.shared[name] else None


def _unlike(got: Array, want: Array) -> Array:
    """Returns the mask of values that rounding cannot explain."""
    if not is_inexact(want.dtype):
        return np.asarray(got != want)
    one, two = got.astype(np.complex128), want.astype(np.complex128)
    finite = np.isfinite(two)
    spread = float(np.std(two[finite])) if finite.any() else 0.0
    with np.errstate(all="ignore"):
        return np.asarray(finite & ~(np.abs(one - two) <= 0.2 * (np.abs(two) + spread)))
