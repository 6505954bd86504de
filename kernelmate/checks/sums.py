"""Sizes at which sums and counts of integers exceed the range of a version's accumulators."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelmate.checks.capacity import FEW, MOST_THREADS_AROUND, workers_at
from kernelmate.checks.ptx_values import number
from kernelmate.checks.reference_facts import elements_at
from kernelmate.checks.sizes import usable
from kernelmate.records import Contract, Size, Version
from kernelmate.source import numpy_dtype, size_allowed

_COUNTERS = (
    (re.compile(r"\band\.b(?:16|32)\s+%\w+, %\w+, 255;"), 1 << 8, False),
    (re.compile(r"\b(?:add|fma)\.(?:\w+\.)*f16(?:x2)?\b"), 1 << 11, False),
    (re.compile(r"\b(?:add|fma)\.(?:\w+\.)*bf16(?:x2)?\b"), 1 << 8, False),
    (
        re.compile(
            r"\band\.b32\s+%\w+, %\w+, 65535;|\bld\.(?:shared|global)\.[bu]16\b|\bshr\.[su]32\s+%\w+, %\w+, 16;"
        ),
        1 << 16,
        True,
    ),
)
"""PTX instructions that add up in narrow types, or take a part of a sum, and the number of ones that they can add.

The last item is True of a sum that all threads of a block may share.
"""

LEAST_SATURATED, MOST_SATURATED = 1 << 15, 1 << 31
"""Range of constants that sums of integers may be limited to."""

MOST_SUMMED = 1 << 19
"""Maximum value of a name at a size at which sums of integers pass such a constant."""

_LIMITED = re.compile(
    r"\b(?:min|max)\.(?:[\w:]+\.)*[sfu](?:32|64)\s+%\w+, %\w+, ([\w-]+);"
    r"|\bsetp\.\w+\.(?:ftz\.)?[sfu](?:32|64)\s+%\w+, %\w+, ([\w-]+);"
    r"|\bmov\.f(?:32|64)\s+%\w+, (\w+);"
)

MOST_COUNTED = 1 << 23
"""Maximum number of elements at a size at which such a counter overflows: a few seconds in the emulator."""


def counter_sizes(contract: Contract, listed: Sequence[Size], version: Version, baseline: Version) -> list[Size]:
    """Returns the smallest sizes at which some thread counts more elements than a new narrow counter holds.

    Only integer outputs are counts. The sums of floating outputs have tolerances, which narrow sums exceed at any size.

    Args:
        contract: defines the allowed sizes.
        listed: the contract's sizes.
        version: the version under judgement.
        baseline: the version it was derived from.
    """
    outputs = [numpy_dtype(a.dtype) for a in contract.args if a.direction in ("out", "inout")]
    if not any(dtype.kind in "iu" and dtype.itemsize >= 4 for dtype in outputs):
        return []
    ptx, theirs = version.compiled.ptx, baseline.compiled.ptx
    held = [
        (most, shared)
        for pattern, most, shared in _COUNTERS
        if len(pattern.findall(ptx)) > len(pattern.findall(theirs))
    ]
    base = min(listed, key=lambda size: elements_at(contract, size))
    few = {name: min(value, FEW) for name, value in base.items()}
    for most, shared in held:
        for name in base:
            for power in range(most.bit_length(), MOST_COUNTED.bit_length()):
                size: Size = {**few, name: (1 << power) + 1}
                elements, workers = elements_at(contract, size), workers_at(version, size, per_block=shared)
                if 0 < most * workers < elements <= MOST_COUNTED and size_allowed(contract, size):
                    return [size]
    return []


def saturating_sizes(contract: Contract, listed: Sequence[Size], version: Version, baseline: Version) -> list[Size]:
    """Returns for each name a size at which sums of integers in a thread pass the constants that a version limits them to.

    None without integer inputs and outputs, or if the baseline has the same constants.

    Args:
        contract: defines the allowed sizes.
        listed: the contract's sizes.
        version: the version under judgement.
        baseline: the version it was derived from.
    """
    kinds = {(a.direction == "in", numpy_dtype(a.dtype)) for a in contract.args if a.shape is not None}
    sources = [dtype.itemsize for given, dtype in kinds if given and dtype.kind in "iu" and dtype.itemsize <= 2]
    if not sources or not any(not given and dtype.kind in "iu" and dtype.itemsize >= 4 for given, dtype in kinds):
        return []
    limits = _limits(version.compiled.ptx) - _limits(baseline.compiled.ptx)
    if not limits:
        return []
    base = min(listed, key=lambda size: elements_at(contract, size))
    found: list[Size] = []
    for name in base:
        few = {other: min(value, FEW) for other, value in base.items()}
        long = {**few, name: MOST_SUMMED + 1}
        threads = workers_at(version, long, per_block=False) // max(1, workers_at(version, long, per_block=True))
        needed = max(limits) // (1 << (8 * min(sources) - 1)) * threads
        size = {**few, name: min(MOST_SUMMED, 1 << needed.bit_length()) + 1}
        if threads > 0 and usable(contract, size, MOST_THREADS_AROUND, 4 * MOST_SUMMED):
            found.append(size)
    return found


def _limits(ptx: str) -> set[int]:
    """Returns the magnitudes of the constants that sums of integers may be limited to."""
    values = (number(text) for pair in _LIMITED.findall(ptx) for text in pair if text)
    magnitudes = (abs(float(value)) for value in values if value is not None)
    return {int(one) for one in magnitudes if LEAST_SATURATED <= one < MOST_SATURATED}
