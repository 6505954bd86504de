"""All sizes of a verdict: listed ones, generated ones, and those that a version's text, launch or code suggests."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial

from kernelmate.checks.capacity import (
    MOST_ELEMENTS_AROUND,
    MOST_THREADS_AROUND,
    further_sizes,
    larger_values,
    unlaunchable_sizes,
    workers_at,
)
from kernelmate.checks.cases import CaseJudge
from kernelmate.checks.causes import size_text
from kernelmate.checks.code_inputs import suggested_styles, with_styles
from kernelmate.checks.code_sizes import code_sizes
from kernelmate.checks.guards import launch_environment
from kernelmate.checks.oracle import Oracle
from kernelmate.checks.reference_facts import MEDIUM_ELEMENTS, elements_at
from kernelmate.checks.size_plan import PlannedSize, selected_sizes, tried_sizes
from kernelmate.checks.sizes import holding_size, usable
from kernelmate.checks.styles import COUNTED, LARGEST_SUMS, narrow_inputs
from kernelmate.checks.sums import counter_sizes, saturating_sizes
from kernelmate.checks.values import EVERY_HALF
from kernelmate.records import Contract, JudgeTask, Size, Version
from kernelmate.source.conditions import Condition

LONGEST_OWN_S = 2.0
"""Seconds that one evaluation of the reference may take at a larger generated size."""

SMALLER = 4
"""Divisor of a size at which a launch takes too long: each attempt may cost a second."""


MOST_SCRATCH_THREADS = 1 << 21
"""Maximum number of threads at a size with more threads or blocks than a device array has elements."""

MOST_SCRATCH = 1 << 22
"""Maximum number of elements, and value of a size name, at such a size."""

_ARRAY = re.compile(r"^\s*(?:\.visible\s+)?\.global\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\];", re.MULTILINE)
"""Pattern of a `__device__` array without initialiser in NVRTC's PTX: alignment, name, bytes."""


def chosen_sizes(
    task: JudgeTask, oracle: Oracle, cases: CaseJudge, conditions: Sequence[Condition], *, compared: bool
) -> tuple[list[PlannedSize], list[str]]:
    """Returns the sizes of a verdict in the order in which they are tried, and a sentence for each that is left out.

    Args:
        task: the version and its baseline.
        oracle: knows how long the reference takes.
        cases: judges the sizes; says which inputs may be tried.
        conditions: conditions of the version's text that its baseline lacks.
        compared: True if the baseline can be run.
    """
    contract, version = oracle.contract, task.candidate
    listed = task.sizes or contract.sizes
    if not task.own_sizes:
        return [PlannedSize(size, "contract") for size in listed], []
    baseline = task.baseline if compared else None
    taken = launch_environment.dependence(version, contract)
    aligned = taken is not None and taken.aligned
    sizes, beyond = tried_sizes(contract, listed, task.seed, conditions if compared else (), aligned=aligned)
    narrow = narrow_inputs(contract) if compared else ()
    holding = holding_size(contract, listed, narrow, EVERY_HALF) if narrow else None
    more = [] if holding is None else [holding]
    more += scratch_sizes(version, task.baseline, listed)
    sizes += [PlannedSize(size, "own") for size in more]
    if baseline is not None:
        known = [one.size for one in sizes]
        found = further_sizes(contract, listed, known, version, baseline)
        found += code_sizes(contract, (*known, *found), version, baseline)
        sizes += selected_sizes(found)
        styles = suggested_styles(contract, version, baseline, cases.varied_scalars, cases.wide_scalars)
        sizes = with_styles(contract, sizes, styles, cases.may_try)
    slow = {
        id(one): seconds
        for one in sizes
        if one.origin == "own"
        and elements_at(contract, one.size) > MEDIUM_ELEMENTS
        and (seconds := oracle.seconds_of(one.size)) > LONGEST_OWN_S
    }
    left_out = [
        f"{size_text(one.size)} was not tried: its reference would take about {slow[id(one)]:.0f} s"
        for one in sizes
        if id(one) in slow
    ]
    sizes = [one for one in sizes if id(one) not in slow]
    if baseline is not None:
        counted = counter_sizes(contract, listed, version, baseline)
        sizes += [PlannedSize(size, "own", once=True, styled=False, styles=COUNTED) for size in counted]
        summed = saturating_sizes(contract, listed, version, baseline)
        sizes += [PlannedSize(size, "own", once=True, styled=False, styles=LARGEST_SUMS) for size in summed]
        unlaunched = unlaunchable_sizes(contract, listed, version, baseline)
        sizes += [PlannedSize(size, "own", once=True, styled=False) for size in unlaunched]
    return sizes, [*beyond, *left_out]


def smaller_size(contract: Contract, size: Size, tried: Sequence[Size]) -> Size | None:
    """Returns a smaller size that is still beyond all tried ones, by the name that exceeds them most; None without one.

    Args:
        contract: says which sizes are allowed.
        size: the size at which a launch takes too long.
        tried: the sizes that were launched.
    """
    most = {name: max((one[name] for one in tried), default=0) for name in size}
    name = max(size, key=lambda each: size[each] / max(1, most[each]), default=None)
    if name is None:
        return None
    larger = (value for value in larger_values(size[name] // SMALLER) if most[name] < value < size[name])
    found = ({**size, name: value} for value in larger)
    return next((one for one in found if usable(contract, one, MOST_THREADS_AROUND, MOST_ELEMENTS_AROUND)), None)


def scratch_sizes(version: Version, baseline: Version | None, listed: tuple[Size, ...]) -> tuple[Size, ...]:
    """Returns the smallest sizes with more threads, or more blocks, than a version's new device array has elements."""
    known = set() if baseline is None else set(_ARRAY.findall(baseline.compiled.ptx))
    lengths = {int(size) // int(align) for align, name, size in _ARRAY.findall(version.compiled.ptx)
               if (align, name, size) not in known and int(size) > int(align)}  # fmt: skip
    # Starts from the cheapest size, so that loops over other dimensions stay short.
    bases = sorted(listed, key=lambda size: math.prod(max(value, 1) for value in size.values()))
    found: list[Size] = []
    for length in sorted(lengths):
        for per_block in (False, True):
            tried = (*listed, *found)
            if any(workers_at(version, size, per_block=per_block) > length for size in tried):
                continue
            size = next(
                (one for base in bases if (one := _grown_past(version, base, length, per_block=per_block))), None
            )
            if size is not None:
                found.append(size)
    return tuple(found)


def _grown_past(version: Version, base: Size, length: int, *, per_block: bool) -> Size | None:
    """Returns a listed size with one name enlarged until there are more threads or blocks than elements."""
    fits = partial(usable, version.contract, threads=MOST_SCRATCH_THREADS, elements=MOST_SCRATCH)
    for name in base:
        size = {**base, name: max(base[name], 1)}
        # A name that only lengthens a loop never increases threads or elements.
        while size[name] <= MOST_SCRATCH and fits(size) and workers_at(version, size, per_block=per_block) <= length:
            size = {**size, name: 2 * size[name]}
        if size[name] <= MOST_SCRATCH and fits(size):
            return size
    return None
