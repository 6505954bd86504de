"""Assignments and additions at computed numbers in a loop over a size, for all iterations at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array
from kernelmate.synthesis.index_maps import Linear, linear
from kernelmate.synthesis.indexed import added_at
from kernelmate.synthesis.loop_places import Axes, loops_of, place_of, signature_in
from kernelmate.synthesis.masks import assign_numbers
from kernelmate.synthesis.primitives import broadcast_to, view_of
from kernelmate.synthesis.sizes import Untraceable, text_of


def add_by_number(a: Array, keys: Sequence[Any], value: Array) -> bool:
    """Implements `a[index[i]] += value` for all iterations, as `np.add.at`; returns False for other assignments.

    Raises:
        Untraceable: an iteration reads what another one added.
    """
    builder, loops = a.builder, a.builder.open
    computed = [isinstance(one, Array) and bool(one.loops) and place_of(one) is None for one in keys]
    node = builder.nodes[value.node]
    while node.op == "cast":
        node = builder.nodes[node.args[0]]
    sign = {"add": np.add, "subtract": np.subtract}.get(str(node.data[0])) if node.op == "map" else None
    if a.loops or computed != [True, *[False] * (len(keys) - 1)] or sign is None:
        return False
    picks = {found for loop in loops for one, found in loop.picks if one is a}
    first, second = node.args
    if first not in picks and (second not in picks or sign is np.subtract):
        return False
    several = any([one is a for one, _ in loop.picks].count(True) > 1 for loop in loops)
    reads = [(loop, said) for loop in loops for one, said in (*loop.reads, *loop.writes) if one is a]
    if several or any(said != signature_in(loop, keys) for loop, said in reads):
        raise Untraceable("a loop over a size in which an iteration needs a value of another one")
    _add_at(a, keys, Array(builder, second if first in picks else first), sign)
    a.whole.adding = tuple(loops)
    return True


def _add_at(a: Array, keys: Sequence[Any], added: Array, ufunc: np.ufunc) -> None:
    """Adds the values of all iterations to the rows that the first index selects; other indices cover whole axes."""
    index, *rest = keys
    places = [place_of(one) for one in rest]
    order = [*index.loops, *(place.loop for place in places if place is not None)]
    for key, place, side in zip(rest, places, a.shape[1:], strict=True):
        whole = key == slice(None) if place is None else (place.offset, place.step) == (Linear(), 1)
        if not whole or (place is not None and linear(text_of(place.loop.count)) != linear(text_of(side))):
            raise Untraceable("an addition at a computed index to parts of an array, in a loop over a size")
    own = sum(place is None for place in places)
    if (
        any(place is None for place in places[: len(places) - own])
        or {*added.loops} - {*order}
        or len({*order}) < len(order)
    ):
        raise Untraceable("an addition at a computed index to parts of an array, in a loop over a size")
    axes: Axes = [added.loops.index(loop) if loop in added.loops else None for loop in order]
    axes += [None] * (own - added.ndim) + [len(added.loops) + axis for axis in range(added.ndim)]
    values = view_of(a.builder, added.node, axes, ())
    numbers = view_of(a.builder, index.node, range(len(index.loops)), ())
    added_at(ufunc, a, numbers, broadcast_to(values, [*(loop.count for loop in index.loops), *a.shape[1:]]))


def assign_by_number(a: Array, keys: Sequence[Any], value: Array) -> bool:
    """Implements `a[index[i]] = value` for all iterations; returns False for other assignments.

    Raises:
        Untraceable: an iteration reads what another one assigned, or assigns to what all others assign to.
    """
    whole = [isinstance(one, slice) and one == slice(None) for one in keys]
    computed = any(isinstance(one, Array) and place_of(one) is None for one in keys)
    if (
        a.loops
        or not computed
        or any(isinstance(one, slice) and not all_ for one, all_ in zip(keys, whole, strict=True))
    ):
        return False
    loops = sorted({loop for one in keys for loop in loops_of(one)}, key=lambda loop: loop.number)
    if {*value.loops} - {*loops}:
        raise Untraceable("a loop over a size in which each iteration assigns to the same elements")
    if any(one is a for loop in loops for one, _ in (*loop.reads, *loop.writes, *loop.picks)):
        raise Untraceable("a loop over a size in which an iteration needs a value of another one")
    several: list[Array | None] = []
    for key, all_ in zip(keys, whole, strict=True):
        one = None if all_ else a.builder.lift(key)
        axes: Axes = [one.loops.index(loop) if loop in one.loops else None for loop in loops] if one is not None else []
        several.append(one if one is None else view_of(a.builder, one.node, axes, ()))
    order: Axes = [value.loops.index(loop) if loop in value.loops else None for loop in loops]
    order += [None] * (sum(whole) - value.ndim) + [len(value.loops) + axis for axis in range(value.ndim)]
    while several and several[-1] is None:
        several.pop()
    assign_numbers(a, several, [loop.count for loop in loops], view_of(a.builder, value.node, order, ()))
    for loop in loops:
        loop.writes.append((a, object()))
    a.whole.adding = tuple(loops)
    return True
