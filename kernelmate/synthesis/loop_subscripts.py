"""Subscripts by the index of a loop over a size: reads, assignments and accumulations, for all iterations at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, Builder, cast
from kernelmate.synthesis.growing import growing_slice
from kernelmate.synthesis.index_maps import ORDINARY, WRAP, AxisMap, linear
from kernelmate.synthesis.loop_numbers import add_by_number, assign_by_number
from kernelmate.synthesis.loop_places import (
    Axes,
    depends,
    linear_of,
    loops_of,
    others_in,
    place_of,
    signature_in,
)
from kernelmate.synthesis.loops import TracedLoop, local_name
from kernelmate.synthesis.primitives import broadcast_to, gathered, picked, reduced, view_of, where
from kernelmate.synthesis.ragged import note_row, reduced_rows, row_elements
from kernelmate.synthesis.recurrences import Again, State, first_or, in_first_turn, state_of
from kernelmate.synthesis.sizes import Untraceable, text_of
from kernelmate.synthesis.slices import axis_range


def chosen(a: Array, keys: Sequence[Any]) -> Any:
    """Implements `a[i]`, `a[i + 1, :]` and `a[i : i + 3]`, for all iterations."""
    row = row_elements(a, keys)
    if row is not None:
        return row
    grown = growing_slice(a, keys)
    if grown is not None:
        for loop in a.builder.open:
            if not _is_carried(loop, a):
                loop.grown.append(a)
                _learn_carried(loop, a)
        return grown
    computed = [place for place, one in enumerate(keys) if isinstance(one, Array) and place_of(one) is None]
    if len(computed) > 1:
        raise Untraceable("several computed indices, in a loop over a size")
    if computed:
        (place,) = computed
        if any(one is a for loop in a.builder.open for one, _ in loop.writes):
            raise Untraceable("a loop over a size in which an iteration needs a value of another one")
        rest = a[(*keys[:place], slice(None), *keys[place + 1 :])]
        axis = sum(isinstance(one, slice) for one in keys[:place])
        shared = rest.shared
        found = gathered(rest, keys[place]) if rest.loops else picked(rest, keys[place], axis)
        rest.shared = shared  # it is a copy
        for loop in a.builder.open:
            loop.picks.append((a, found.node))
        return found
    _learn_elements(a, keys)
    earlier = _left_by_a_turn(a, keys)
    if earlier is not None:
        return earlier
    _note(a, keys, write=False)
    used = {loop for one in keys for loop in loops_of(one)}
    loops = tuple(sorted({*used, *a.loops}, key=lambda loop: loop.number))
    at = {loop: place for place, loop in enumerate(loops)}
    maps = [AxisMap("0", ((at[loop], 1),)) for loop in a.loops]
    inner: list[str] = []
    for key, side in zip(keys, a.shape, strict=True):
        maps.append(_map_of(key, side, at, len(loops) + len(inner), inner, axis_range))
    sides = [*(text_of(loop.count) for loop in loops), *inner]
    axes = _permutation(a, maps, sides)
    if axes is not None:
        return view_of(a.builder, a.node, axes, loops)
    lengths = [a.builder.dim(text) for text in sides]
    return a.builder.put("window", [a.node], lengths, a.dtype, tuple(one.text() for one in maps), loops)


def _learn_elements(a: Array, keys: Sequence[Any]) -> None:
    """Records the number of elements of all rows for a loop over the elements of one row.

    The number is the length of the array that the loop indexes.

    Raises:
        Again: no earlier trace has recorded it.
    """
    for key, side in zip(keys, a.shape, strict=False):
        for loop in loops_of(key):
            if loop.rows is not None and not loop.carried.elements:
                loop.carried.elements = text_of(side)
                raise Again


def _map_of(key: Any, side: int, at: dict[TracedLoop, int], axis: int, inner: list[str], ranged: Any) -> AxisMap:
    """Returns the index map of one key along an axis; the extent of a kept axis is appended to `inner`."""
    if isinstance(key, slice) and depends([key]):
        if any(isinstance(one, Array) and place_of(one) is None for one in (key.start, key.stop)):
            raise Untraceable("a slice whose bound is a value")
        start, stop = place_of(key.start), place_of(key.stop)
        first = (start.offset, start.step) if start else (linear(text_of(key.start or 0)), 0)
        last = (stop.offset, stop.step) if stop else None
        if last is None or first[1] != last[1] or key.step not in (None, 1):
            raise Untraceable("a slice whose length differs between the iterations of a loop over a size")
        assert stop is not None
        inner.append(last[0].plus(first[0], -1).text())
        return AxisMap(first[0].text(), ((at[stop.loop], first[1]), (axis, 1)))
    place = place_of(key)
    if place is not None:
        negative = not place.offset.terms and place.offset.constant < 0
        return AxisMap(place.offset.text(), ((at[place.loop], place.step),), WRAP if negative else ORDINARY)
    if isinstance(key, Array):
        raise Untraceable("several computed indices, in a loop over a size")
    one = ranged(key, side)
    if one.dropped:
        return AxisMap(one.start.text(), ())
    inner.append(one.length)
    return AxisMap(one.start.text(), ((axis, one.step),))


def _permutation(a: Array, maps: Sequence[AxisMap], sides: Sequence[str]) -> list[int] | None:
    """Returns the source axis of each result axis if the maps are a permutation of whole axes; else None."""
    found: dict[int, int] = {}
    texts = a.builder.nodes[a.node].shape
    for place, one in enumerate(maps):
        if one.offset != "0" or one.every != 1 or len(one.terms) != 1 or one.terms[0][1] != 1:
            return None
        axis = one.terms[0][0]
        if axis in found or linear(sides[axis]) != linear(texts[place]):
            return None
        found[axis] = place
    return [found[axis] for axis in range(len(sides))] if len(found) == len(sides) else None


def _note(a: Array, keys: Sequence[Any], *, write: bool) -> None:
    """Checks that an iteration does not read elements that another one writes, except the one or two before it."""
    for loop in {loop for one in keys for loop in loops_of(one)}:
        signature = signature_in(loop, keys)
        lags: dict[int, int] = {}
        late = {number: turns for other, number, turns in loop.late if other is a} if write else {}
        for number, (other, said) in enumerate(loop.reads if write else loop.writes):
            if other is a and (said != signature or number in late):
                lags[number] = late.get(number) or (_lag(loop, a.builder, said, signature) if write else 0)
                if not lags[number] or loop.others[number] != others_in(loop, keys):
                    raise Untraceable("a loop over a size in which an iteration needs a value of another one")
        if lags:
            loop.carried.shift = _shift(a.builder, signature)
            loop.carried.lags |= lags
            part = chosen(a, keys)
            known = tuple(text_of(one) for one in part.shape), part.dtype.name
            loop.carried.reads |= dict.fromkeys(lags, known)
            raise Again
        (loop.writes if write else loop.reads).append((a, signature))
        loop.others += [] if write else [others_in(loop, keys)]
        if loop.rows is not None:
            offsets, outer = loop.rows
            note_row(a, offsets, outer, outer.writes if write else outer.reads)


def _lag(loop: TracedLoop, builder: Builder, read: Any, write: Any) -> int:
    """Returns the number of iterations since a read element was assigned: one or two; otherwise 0."""
    if len(read) != 1 or len(write) != 1 or read[0][0] != write[0][0]:
        return 0
    if not all(isinstance(one[0][1], int) for one in (read, write)):
        return 0
    first, second = (linear_of(builder, one[0][1]) for one in (read, write))
    if first is None or second is None or first[2] != 1 or second[2] != 1:
        return 0
    apart = second[1].plus(first[1], -1)
    if apart.terms or apart.constant not in ((-1,) if loop.backwards else (1, 2)):
        return 0
    return abs(apart.constant)


def _shift(builder: Builder, write: Any) -> int:
    """Returns the constant offset of an assigned element from the iteration's index; 0 if it is not constant."""
    found = linear_of(builder, write[0][1])
    assert found is not None
    assert found[0] is not None
    apart = found[1].plus(linear(text_of(found[0].first_number)), -1)
    return apart.constant if not apart.terms else 0


def _lateness(loop: TracedLoop, keys: Sequence[Any]) -> int:
    """Returns how many iterations earlier an element was read by its own iteration.

    The result is zero unless the loop has additional first iterations.
    """
    places = [place_of(one) for one in keys if loop in loops_of(one)]
    if not loop.peeled or loop.backwards or len(places) != 1 or places[0] is None or places[0].step != 1:
        return 0
    apart = places[0].offset.plus(linear(text_of(loop.first_number)), -1).plus(-loop.carried.shift)
    return -apart.constant if not apart.terms and -loop.peeled <= apart.constant < 0 else 0


def _late(loop: TracedLoop, a: Array, keys: Sequence[Any], lateness: int) -> Array:
    """Returns the state that holds an element of an earlier iteration, which that iteration reads as well."""
    loop.late.append((a, len(loop.reads), lateness))
    now = chosen(a, [one + lateness if loop in loops_of(one) else one for one in keys])
    shape = tuple(text_of(one) for one in now.shape)
    zero = a.builder.lift(0.0 if now.dtype.kind == "f" else 0)
    for back in range(lateness):
        key = "late", (a.node, others_in(loop, keys), back)
        state = next((one for one in loop.states if one.key == key), None)
        if state is None:
            state = state_of(loop, a.builder, key, zero, shape, now.dtype.name)
            state.following = now
        now = state.placeholder
    return Array(a.builder, now.node)


def _left_by_a_turn(a: Array, keys: Sequence[Any]) -> Array | None:
    """Returns the state for an element that an earlier iteration assigned, if an earlier trace has found that."""
    for loop in {loop for one in keys for loop in loops_of(one)}:
        known = loop.carried.reads.get(len(loop.reads))
        lateness = _lateness(loop, keys) if known is None else 0
        if lateness:
            return _late(loop, a, keys, lateness)
        if known is None:
            continue
        number = len(loop.reads)
        loop.reads.append((Array(a.builder, a.node), ()))
        loop.others.append(())
        lag = loop.carried.lags.get(number, 1)
        state = _newest(loop, a, keys, number, known)
        if lag == 1:
            return first_or(loop, state.start, state)
        return _before(loop, a, keys, number, state)
    return None


def _newest(loop: TracedLoop, a: Array, keys: Sequence[Any], number: int, known: tuple[tuple[str, ...], str]) -> State:
    """Returns the state of the element that the previous iteration assigned."""
    found = next((one for one in loop.states if one.key[0] == "read" and one.held is a), None)
    if found is not None and loop.carried.reads.get(int(found.key[1])) == known:
        return found
    state = state_of(loop, a.builder, ("read", number), _element_before(loop, a, keys, 1), *known)
    state.held = a
    return state


def _before(loop: TracedLoop, a: Array, keys: Sequence[Any], number: int, newest: State) -> Array:
    """Returns the state of the element that the iteration before the previous one assigned."""
    found = next((one for one in loop.states if one.key[0] == "before" and one.following is newest.placeholder), None)
    if found is None:
        start = a.builder.lift(0.0 if newest.placeholder.dtype.kind == "f" else 0)
        start = start if loop.peeled else _element_before(loop, a, keys, 2)
        node = a.builder.nodes[newest.placeholder.node]
        shape = node.shape[len(a.builder.open) :]
        found = state_of(loop, a.builder, ("before", number), start, shape, node.dtype)
        found.following = newest.placeholder
    return Array(a.builder, found.placeholder.node)


def _element_before(loop: TracedLoop, a: Array, keys: Sequence[Any], lag: int) -> Array:
    """Returns the element that is read in the first iteration, or in the first of the additional iterations."""
    place = next(place for place, one in enumerate(keys) if loop in loops_of(one))
    at = loop.first_position() if loop.peeled else loop.first_position() - (-lag if loop.backwards else lag)
    return Array(a.builder, Array(a.builder, a.node)[(*keys[:place], at, *keys[place + 1 :])].node)


def _added_to(a: Array, keys: Sequence[Any], value: Array, known: set[TracedLoop]) -> tuple[TracedLoop, ...]:
    """Returns the loops whose iterations all add to the assigned elements, except loops of the array's indices."""
    nodes, found = a.builder.nodes, []
    for loop in a.builder.open:
        sums = [before for _, before, after in loop.sums if after == value.node and loop not in known]
        alone = [before for before in sums if sum(before in node.args for node in nodes) == 1]
        if alone and chosen(a, keys).node == alone[-1]:
            found.append(loop)
    return tuple(found)


def _is_carried(loop: TracedLoop, a: Array) -> bool:
    """Returns True if a loop carries the whole array, which its iterations change."""
    return any(one.held is a and one.key[0] == "local" for one in loop.states)


def _learn_carried(loop: TracedLoop, a: Array) -> None:
    """Has a loop carry a local array of which its iterations read growing slices and assign elements.

    Raises:
        Again: this is so.
    """
    if not (any(one is a for one in loop.grown) and any(one is a for one in loop.assigned)):
        return
    name = local_name(a)
    if name is None:
        raise Untraceable("a loop over a size in which an iteration needs a value of another one")
    loop.carried.in_place.add(name)
    loop.carried.learn(loop.carried.locals, name, (tuple(text_of(one) for one in a.shape), a.dtype.name))


def _assign_to_carried(a: Array, keys: Sequence[Any], value: Array) -> bool:
    """Implements `a[i] = value` for an array that the loop carries as a whole; returns False for others."""
    places = [place_of(one) for one in keys]
    own = [place for place in places if place is not None and _is_carried(place.loop, a)]
    if not own:
        return False
    if any(place is None and one != slice(None) for one, place in zip(keys, places, strict=True)):
        raise Untraceable("an assignment to a part of an array that the iterations of a loop over a size read")
    kept = [axis for axis, place in enumerate(places) if place is None]
    axes: Axes = [None] * len(keys)
    for own_axis, axis in enumerate(kept[len(kept) - value.ndim :]):
        axes[axis] = own_axis
    chosen_: Any = None
    for axis, (key, side) in enumerate(zip(keys, a.shape, strict=True)):
        if places[axis] is not None:
            position = a.builder.add("iota", (), [side], np.int64).view_of([0, *[None] * (len(keys) - axis - 1)])
            chosen_ = position == key if chosen_ is None else chosen_ & (position == key)
    a.assign(cast(where(chosen_, value.view_of(axes), Array(a.builder, a.node)), a.dtype))
    return True


def assign(a: Array, keys: Sequence[Any], value: Any) -> None:
    """Implements `a[i] = value`, for all iterations."""
    row = row_elements(a, keys, assigned=True)
    if row is not None:
        row.written_to(a, value)
        return
    if _assign_to_carried(a, keys, a.builder.lift(value)):
        return
    for used in {loop for one in keys for loop in loops_of(one)}:
        used.assigned.append(a)
        _learn_carried(used, a)
    if add_by_number(a, keys, a.builder.lift(value)) or assign_by_number(a, keys, a.builder.lift(value)):
        return
    _note(a, keys, write=True)
    places = [place_of(one) for one in keys]
    if any(isinstance(one, Array) and place is None for one, place in zip(keys, places, strict=True)) or any(
        isinstance(one, slice) and depends([one]) for one in keys
    ):
        raise Untraceable("an assignment at a computed index, or to a slice, in a loop over a size")
    if any(place is not None and (place.step != 1 or place.loop in a.loops) for place in places):
        raise Untraceable("an assignment at an index that grows by more than one per iteration")
    value = _following(a, keys, a.builder.lift(value))
    known = {place.loop for place in places if place is not None} | {*a.loops}
    adding = _added_to(a, keys, value, known)
    if any(loop not in known for loop in value.loops):
        raise Untraceable("a loop over a size in which each iteration assigns to the same elements")
    plain: list[Any] = []
    order: list[TracedLoop | None] = []
    for key, place in zip(keys, places, strict=True):
        if place is None:
            plain.append(key)
            order += [None] if isinstance(key, slice) else []
            continue
        first = a.builder.dim(place.offset.text())
        plain.append(slice(first, first + place.loop.count))
        order.append(place.loop)
    part = a[tuple(plain)]
    kept = order.count(None)
    axes: Axes = [value.loops.index(loop) if loop in value.loops else None for loop in a.loops]
    number = 0
    for loop in order:
        if loop is not None:
            axes.append(value.loops.index(loop) if loop in value.loops else None)
            continue
        own = number - (kept - value.ndim)
        axes.append(None if own < 0 else len(value.loops) + own)
        number += 1
    part.assign(view_of(a.builder, value.node, axes, a.loops))
    a.whole.adding = adding


def _following(a: Array, keys: Sequence[Any], value: Array) -> Array:
    """Returns the assigned value, which the next iteration reads.

    In an additional first iteration, it is the existing contents.
    """
    for loop in {loop for one in keys for loop in loops_of(one)}:
        for state in loop.states:
            if state.held is a and state.key[0] == "read":
                state.following = cast(value, a.dtype)
        if loop.peeled:
            place = next(place for place, one in enumerate(keys) if loop in loops_of(one))
            there = Array(a.builder, a.node)[(*keys[:place], loop.first_position(), *keys[place + 1 :])]
            first = in_first_turn(loop, Array(a.builder, there.node))
            if first is None:
                raise Untraceable("a loop from the second element on, beside a first one that cannot be traced")
            value = cast(where(loop.is_first(), first, value), value.dtype)
    return value


def accumulated(target: Array, other: Any, kind: str) -> Any:
    """Accumulates the sum or product over all iterations into an array from before the loop."""
    value = target.builder.lift(other)
    extra = [loop for loop in value.loops if loop not in target.loops]
    if not extra:
        return other
    if len(extra) == 1 and extra[0].rows is not None:
        wide = broadcast_to(value, target.shape) if value.ndim < target.ndim else value
        return reduced_rows(extra[0], wide, kind)
    if any(loop.rows is not None for loop in extra):
        raise Untraceable("a sum over the elements of all rows in loops over them")
    if any(one is target for loop in extra for one, _ in loop.reads):
        raise Untraceable("a loop over a size in which an iteration needs a value of another one")
    wide = broadcast_to(value, target.shape) if value.ndim < target.ndim else value
    kept = tuple(loop for loop in wide.loops if loop not in extra)
    places = [wide.loops.index(loop) for loop in (*kept, *extra)]
    whole = view_of(target.builder, wide.node, [*places, *range(len(wide.loops), len(wide.loops) + wide.ndim)], kept)
    return reduced(whole, kind, tuple(range(len(extra))))


def collected(several: Sequence[Any]) -> Array | None:
    """Stacks the results of all iterations of a finished loop along a new first axis; None for other lists."""
    if len(several) != 1 or not isinstance(several[0], Array) or not any(loop.finished for loop in several[0].loops):
        return None
    one = several[0]
    over_ = [loop for loop in one.loops if loop.finished]
    if len(over_) != 1:
        raise Untraceable("a list of results of several loops")
    kept = tuple(loop for loop in one.loops if not loop.finished)
    places = [one.loops.index(loop) for loop in (*kept, *over_)]
    return view_of(one.builder, one.node, [*places, *range(len(one.loops), len(one.loops) + one.ndim)], kept)
