"""Selection of a version for each size, with few distinct versions, and a rule over the sizes that makes the same choices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from kernelmate.records import DispatchRule

NEAR = 0.03
"""A version within this fraction of the fastest one at a size counts as equally fast."""


def few_versions(times_us: Sequence[Sequence[float | None]]) -> tuple[int | None, ...]:
    """Returns the version to launch at each size.

    A greedy set cover keeps the number of versions small, with each size within `NEAR` of its fastest time. Among
    versions that cover equally many sizes the earlier one wins, so that the kernel itself stays if nothing is gained.

    Args:
        times_us: by version, then by size; None where a version has no time at a size.
    """
    sizes = range(len(times_us[0]))
    good = {size: _near_fastest([times[size] for times in times_us]) for size in sizes}
    left = {size for size in sizes if good[size]}
    taken: list[int] = []
    while left:
        taken.append(max(range(len(times_us)), key=lambda v: (sum(v in good[size] for size in left), -v)))
        left -= {size for size in left if taken[-1] in good[size]}
    return tuple(next((v for v in taken if v in good[size]), None) for size in sizes)


def _near_fastest(times: Sequence[float | None]) -> frozenset[int]:
    known = [time for time in times if time is not None]
    if not known:
        return frozenset()
    return frozenset(v for v, time in enumerate(times) if time is not None and time <= (1 + NEAR) * min(known))


def dispatch_rule(sizes: Sequence[Mapping[str, int]], chosen: Sequence[int | None]) -> DispatchRule | None:
    """Returns the simplest rule that makes these choices.

    Fewest intervals first, then one size before a product of several.

    Returns None if no measure separates the versions, or nothing was chosen.
    """
    known = [(size, version) for size, version in zip(sizes, chosen, strict=True) if version is not None]
    if not known:
        return None
    rules = [_intervals(names, known) for names in _measures(sizes)]
    found = [rule for rule in rules if rule is not None]
    return min(found, key=lambda rule: len(rule.versions), default=None)


def _measures(sizes: Sequence[Mapping[str, int]]) -> list[tuple[str, ...]]:
    """Returns the names that vary over the sizes: single names first, then products."""
    names = [name for name in sizes[0] if len({size[name] for size in sizes}) > 1] or list(sizes[0])[:1]
    return [some for count in range(1, len(names) + 1) for some in itertools.combinations(names, count)]


def _intervals(names: tuple[str, ...], known: Sequence[tuple[Mapping[str, int], int]]) -> DispatchRule | None:
    """Returns the rule over the product of the given sizes; None if one value would need several versions."""
    by_value: dict[int, int] = {}
    for size, version in known:
        if by_value.setdefault(math.prod(size[name] for name in names), version) != version:
            return None
    values = sorted(by_value)
    starts = [v for i, v in enumerate(values) if i == 0 or by_value[v] != by_value[values[i - 1]]]
    return DispatchRule(" * ".join(names), tuple(by_value[v] for v in starts), tuple(starts[1:]))
