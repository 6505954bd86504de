"""Divisibility conditions that a kernel relies on, derived from failing sizes and confirmed at others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from kernelmate.checks.case_records import CaseRecord
from kernelmate.records import Size
from kernelmate.source.render import string_list

DIVISORS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Divisors tried: those of vector widths, warps, tiles and blocks."""

LEAST_WRONG = 3
"""Minimum number of wrong sizes for which a condition is sought."""

MULTIPLE = 3
"""Odd factor; the divisor times this factor is not a multiple of the next larger divisor."""

Condition = tuple[tuple[str, int], ...]
"""Size names, each with its divisor; the condition holds if every size is divisible."""


def assumed(records: Sequence[CaseRecord], attempt: Callable[[Size], CaseRecord | None]) -> tuple[str, ...]:
    """Return the conditions on sizes, as written in `require`, under which the kernel is right.

    The result is empty if no condition explains the failures.

    Args:
        records: the records of the sizes that were tried.
        attempt: judges one more size; None if it cannot be tried.
    """
    good = [one.size for one in records if one.launched and not failed(one)]
    bad = [one.size for one in records if one.launched and failed(one)]
    if not good or len(bad) < LEAST_WRONG:
        return ()
    for condition in _conditions(good, bad):
        # A divisor that is too small fits as well until one of its multiples has been tried.
        if _holds(condition, bad) or not _holds(condition, good, every=True):
            continue
        size = {**good[-1], **{name: MULTIPLE * divisor for name, divisor in condition}}
        seen = next((one for one in records if one.size == size), None) or attempt(size)
        if seen is not None and not failed(seen):
            return tuple(f"{name} % {divisor} == 0" for name, divisor in condition)
        bad.append(size)
    return ()


def sentence(conditions: Sequence[str], records: Sequence[CaseRecord]) -> str:
    """Returns a sentence that states the conditions a kernel relies on, and the `require` line to add."""
    wrong = sum(failed(record) for record in records)
    return (
        f"assumes {' and '.join(conditions)}: it fails at {wrong} of {len(records)} sizes, at none where that holds; write "
        f"require = {string_list(tuple(conditions))} into the contract"
    )


def failed(record: CaseRecord) -> bool:
    """Returns True if a size is wrong, or has a finding that would reject a version there."""
    return record.correct is False or any(noted.severity in ("error", "warning") for noted in record.noted)


def _conditions(good: Sequence[Size], bad: Sequence[Size]) -> Iterator[Condition]:
    """Yields conditions from weak to strong: on one size name, then on pairs of names."""
    names = [name for name in good[0] if any(size[name] for size in bad)]
    for divisor in DIVISORS:
        yield from (((name, divisor),) for name in names)
    for first, second in itertools.combinations(names, 2):
        yield from (((first, one), (second, two)) for one, two in itertools.product(DIVISORS, repeat=2) if one == two)
        yield from (((first, one), (second, two)) for one, two in itertools.product(DIVISORS, repeat=2) if one != two)


def _holds(condition: Condition, sizes: Sequence[Size], *, every: bool = False) -> bool:
    """Returns True if a condition holds at one of the sizes, or at every one."""
    met = (all(size[name] % divisor == 0 for name, divisor in condition) for size in sizes)
    return all(met) if every else any(met)
