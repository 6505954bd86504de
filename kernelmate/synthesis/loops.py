"""Loops over sizes in references: the body is traced once for all iterations, along an additional axis.

What depends on a loop's number is *batched*: its node has an axis for each such loop before its own ones, which the
stand-in does not show. Assignments by loop index, sums over all iterations and lists of results turn them into ordinary
axes again. An iteration that depends on another one is refused.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from kernelmate.synthesis.arrays import Array, Builder, cast
from kernelmate.synthesis.index_maps import ORDINARY, WRAP, AxisMap, Linear, linear
from kernelmate.synthesis.primitives import broadcast_to, gathered, picked, reduced, spread, view_of, where
from kernelmate.synthesis.ragged import row_elements
from kernelmate.synthesis.recurrences import Again, Carried, State, begun, ended, first_or, in_first_turn, state_of
from kernelmate.synthesis.sizes import Dim, Untraceable, text_of
from kernelmate.synthesis.slices import axis_range

Axes: TypeAlias = "list[int | None]"


@dataclass(slots=True, eq=False)
class TracedLoop:
    """One loop: its place among the reference's loops, its number of iterations, and whether it has ended.

    Attributes:
        builder: of the graph. first_number: the smallest number.
        carried: what earlier traces have learned of it. backwards: whether it runs from its largest number to its smallest.
        peeled: whether it has one turn more than the reference's, the first one, in which nothing is computed.
        reads, writes: arrays that turns read or assign to, with the numbers that they do it by.
        others: the other indices of each read.
        sums: arrays into which all turns are accumulated, with their nodes before and after. states: carried values.
    """

    number: int
    builder: Builder
    first_number: int
    count: int
    carried: Carried
    backwards: bool = False
    peeled: bool = False
    finished: bool = False
    reads: list[tuple[Array, object]] = field(default_factory=list)
    writes: list[tuple[Array, object]] = field(default_factory=list)
    others: list[object] = field(default_factory=list)
    sums: list[tuple[Array, int, int]] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    def first(self) -> int:
        """The number of the first turn."""
        return self.first_number + self.count - 1 if self.backwards else self.first_number

    def first_position(self) -> int:
        """The position along an assigned array of the first turn's element."""
        return self.first() + self.carried.shift

    def index(self) -> Array:
        """The turn's number."""
        made = self.builder.put("iota", (), [self.count], np.int64, (), (self,))
        return made if text_of(self.first_number) == "0" else made + self.first_number

    def is_first(self) -> Array:
        """A condition that is true in the first turn."""
        count = self.builder.put("iota", (), [self.count], np.int64, (), (self,))
        found: Array = count == (self.count - 1 if self.backwards else 0)
        return found


def turns(builder: Builder, start: int, stop: int, *, backwards: bool = False) -> Iterator[Array]:
    """Yields all numbers from `start` to before `stop`, as a single iteration."""
    loop = _opened(builder, start, stop, backwards=backwards)
    frame = _frame(builder.file)
    before = _numbers(frame)
    nodes = {name: value.node for name, value in before.items() if isinstance(value, Array)}
    begun(loop, builder, frame, before)
    yield loop.index()
    after = _numbers(frame)
    _learn(loop, before, nodes, after)
    ended(loop, builder, frame, after)
    loop.finished = True
    builder.open.remove(loop)


def _opened(builder: Builder, start: int, stop: int, *, backwards: bool) -> TracedLoop:
    """Returns a new loop; one that begins at the second element because it carries the first has a turn for that, too."""
    carried = builder.carried.setdefault(builder.loop_count, Carried())
    peeled = False
    if carried.locals or carried.reads:
        peeled = text_of(start) == str(1 - carried.shift) and not backwards
        start = -carried.shift if peeled else start
        above = linear(text_of(stop)).plus(1).text()
        if backwards and above.isidentifier():
            peeled, stop = True, builder.dim(above)
    count = builder.dim(linear(text_of(stop)).plus(carried.shift).text()) if peeled and not backwards else stop - start
    loop = TracedLoop(builder.loop_count, builder, start, count, carried, backwards, peeled)
    builder.loop_count += 1
    builder.open.append(loop)
    return loop


def _learn(loop: TracedLoop, before: dict[str, Any], nodes: dict[str, int], after: dict[str, Any]) -> None:
    """Finds locals that a turn has changed.

    Raises:
        Again: there are some that no earlier trace has found.
    """
    new: dict[str, tuple[tuple[str, ...], str]] = {}
    for name, value in before.items():
        if name in loop.carried.locals or name not in after:
            continue
        same = isinstance(value, int | float) and isinstance(after[name], int | float) and after[name] == value
        rebound = after[name] is not value and not same
        if not rebound and not (type(value) is Array and _is_changed(loop, value, nodes[name])):
            continue
        made = loop.builder.lift(after[name])
        if not rebound:
            loop.carried.in_place.add(name)
        new[name] = tuple(text_of(one) for one in made.shape), made.dtype.name
    if new:
        loop.carried.locals |= new
        raise Again


def _is_changed(loop: TracedLoop, value: Array, before: int) -> bool:
    """True if an array is changed in place by more than what is assigned by a turn's number, or summed over all turns."""
    if value.node == before or any(one is value for one, _ in loop.writes):
        return False
    summed = [(old, new) for one, old, new in loop.sums if one is value]
    if not summed or summed[0][0] != before or summed[-1][1] != value.node:
        return True
    nodes = loop.builder.nodes
    own = {new for _, new in summed}
    return len(summed) > 1 or any(summed[0][1] in node.args for place, node in enumerate(nodes) if place not in own)


def _frame(file: str) -> types.FrameType | None:
    """The innermost running function of a file."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return frame


def _numbers(frame: types.FrameType | None) -> dict[str, Any]:
    """Returns local variables of a function that hold valid arrays or numbers."""
    held = {} if frame is None else frame.f_locals
    kinds = (Array, int, float)
    dead = [
        name for name, value in held.items() if isinstance(value, Array) and any(one.finished for one in value.loops)
    ]
    return {name: value for name, value in held.items() if isinstance(value, kinds) and name not in dead}


def loop_range(builder: Builder, *bounds: Any) -> Any:
    """Returns a `range` that yields a single iteration if a bound is a size."""
    if any(isinstance(one, Array) for one in bounds):
        raise Untraceable("a loop whose length depends on a value, or on another loop")
    if not any(isinstance(one, Dim) for one in bounds):
        return range(*bounds)
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if step == -1:
        first, last = (builder.dim(linear(text_of(one)).plus(1).text()) for one in (stop, start))
        return _LoopRange(builder, first, last, backwards=True)
    if step != 1:
        raise Untraceable("a loop over a size with a step")
    return _LoopRange(builder, start, stop)


class _LoopRange:
    """A range whose length is a size."""

    def __init__(self, builder: Builder, start: int, stop: int, *, backwards: bool = False) -> None:
        self._builder, self._start, self._stop, self._backwards = builder, start, stop, backwards

    def __iter__(self) -> Iterator[Array]:
        return turns(self._builder, self._start, self._stop, backwards=self._backwards)

    def __len__(self) -> int:
        return max(0, int(self._stop) - int(self._start))

    def __getitem__(self, key: Any) -> Any:
        raise Untraceable("a part of a range over a size")

    def __reversed__(self) -> Iterator[Array]:
        return iter(_LoopRange(self._builder, self._start, self._stop, backwards=not self._backwards))


def over(array: Array) -> Iterator[Any]:
    """A loop over an array along its first axis."""
    for index in turns(array.builder, 0, array.shape[0]):
        yield array[index]


def loop_enumerate(values: Any, start: Any = 0) -> Any:
    """`enumerate`; over a traced array as a single iteration."""
    if not isinstance(values, Array) or _is_short(values):
        return enumerate(values, start)
    return ((index + start if start else index, values[index]) for index in turns(values.builder, 0, values.shape[0]))


def loop_zip(*several: Any, **keywords: Any) -> Any:
    """`zip`; over traced arrays as a single iteration."""
    arrays = [one for one in several if isinstance(one, Array) and not _is_short(one)]
    if not arrays:
        return zip(*several, **keywords)  # noqa: B905 -- as it was called
    if len(arrays) != len(several):
        raise Untraceable("a loop over arrays together with something else")
    first = arrays[0]
    return (tuple(one[index] for one in arrays) for index in turns(first.builder, 0, first.shape[0]))


def _is_short(array: Array) -> bool:
    return bool(array.ndim) and text_of(array.shape[0]) == str(len(array))


def batched(builder: Builder, op: str, args: Sequence[Array], shape: Sequence[int], dtype: Any, data: Sequence[Any]) -> Array:  # fmt: skip
    """The result of an operation on arrays of which some are batched."""
    loops = _merged(args)
    lead, more = [loop.count for loop in loops], len(loops)

    def put(nodes: Sequence[int], data: Sequence[Any] = data, sides: Sequence[int] = (*lead, *shape)) -> Array:
        return builder.put(op, nodes, sides, dtype, data, loops)

    wide = [spread(one, loops, len(shape) if op == "map" else one.ndim) for one in args]
    match op:
        case "map" | "cast" | "reshape" | "gather" | "along":
            shift = op == "along"
            return put(wide, (int(data[0]) + more,) if shift else data)
        case "view":
            return put(wide, (*range(more), *(None if one is None else one + more for one in data)))
        case "reduce" | "scan":
            return put(wide, (data[0], int(data[1]) + more, *data[2:]))
        case "window":
            return _window(builder, args, loops, shape, dtype, data)
        case "pick" | "take":
            axis = int(data[0]) if data else 0
            source, index = args
            if not index.loops:
                sides = (*lead, *shape)
                return builder.put("pick", [wide[0], index.node], sides, dtype, (axis + more,), loops)
            if not source.loops:
                rest = source.shape
                sides = (*rest[:axis], *lead, *index.shape, *rest[axis + 1 :])
                made = builder.put(op, [source.node, index.node], sides, dtype, data, loops)
                order = [*range(axis, axis + more), *range(axis), *range(axis + more, len(sides))]
                return view_of(builder, made.node, order, loops)
    raise Untraceable(f"{op} of values that differ between the turns of a loop over a size")


def _merged(args: Sequence[Array]) -> tuple[TracedLoop, ...]:
    """The loops of some arrays, outermost first."""
    loops = sorted({loop for one in args for loop in one.loops}, key=lambda loop: loop.number)
    if any(loop.finished for loop in loops):
        raise Untraceable("a value of a loop's last turn, after the loop")
    return tuple(loops)


def _window(builder: Builder, args: Sequence[Array], loops: tuple[TracedLoop, ...], shape: Sequence[int], dtype: Any, data: Sequence[Any]) -> Array:  # fmt: skip
    """Returns parts of batched arrays, or of others with a batched index."""
    source, *rest = args
    more, sides = len(loops), [*(loop.count for loop in loops), *shape]
    moved = [AxisMap.of(one) for one in data]
    moved = [AxisMap(m.offset, tuple((axis + more, step) for axis, step in m.terms), m.beyond, m.every) for m in moved]
    if source.loops:
        moved = [*(AxisMap("0", ((place, 1),)) for place in range(more)), *moved]
    nodes = [spread(source, loops, source.ndim)]
    for one in rest:
        node = spread(one, loops, len(shape))
        if one.ndim:
            zero = builder.put("constant", (), sides, dtype, (0,), loops)
            node = builder.put("map", [node, zero.node], sides, dtype, ("add",), loops).node
        nodes.append(node)
    return builder.put("window", nodes, sides, dtype, tuple(one.text() for one in moved), loops)


@dataclass(frozen=True, slots=True)
class _Place:
    """A whole number that grows evenly with a loop's number: `offset + step * number`."""

    loop: TracedLoop
    offset: Linear
    step: int


def _place(key: Any) -> _Place | None:
    """Returns the loop of an index that grows evenly with it."""
    if not isinstance(key, Array) or key.ndim or not key.loops or key.dtype.kind not in "iu":
        return None
    found = _linear_of(key.builder, key.node)
    if found is None or found[0] is None or len(key.loops) != 1:
        return None
    return _Place(found[0], found[1], found[2])


def _linear_of(builder: Builder, index: int) -> tuple[TracedLoop | None, Linear, int] | None:
    node = builder.nodes[index]
    match node.op:
        case "iota" if builder.batches.get(index):
            return builder.batches[index][0], Linear(), 1
        case "size":
            return None, linear(str(node.data[0])), 0
        case "constant" if not node.dtype.startswith("float"):
            return None, Linear((), int(node.data[0] or 0)), 0
        case "view" | "cast":
            return _linear_of(builder, node.args[0])
        case "map" if node.data[0] in ("add", "subtract", "multiply"):
            first, second = (_linear_of(builder, one) for one in node.args)
            if first is None or second is None:
                return None
            if node.data[0] == "multiply":
                for one, other in ((first, second), (second, first)):
                    if other[0] is None and not other[1].terms:
                        return one[0], one[1].times(other[1].constant), one[2] * other[1].constant
                return None
            sign = 1 if node.data[0] == "add" else -1
            if first[0] is not None and second[0] is not None and first[0] is not second[0]:
                return None
            return first[0] or second[0], first[1].plus(second[1], sign), first[2] + sign * second[2]
    return None


def depends(keys: Sequence[Any]) -> bool:
    """Returns True if an index or a slice's bound differs between iterations."""
    bounds = [bound for one in keys for bound in ((one.start, one.stop) if isinstance(one, slice) else (one,))]
    return any(isinstance(one, Array) and one.loops and not one.ndim for one in bounds)


def chosen(a: Array, keys: Sequence[Any]) -> Any:
    """Handles `a[i]`, `a[i + 1, :]`, `a[i : i + 3]`, for all iterations."""
    row = row_elements(a, keys)
    if row is not None:
        return row
    computed = [place for place, one in enumerate(keys) if isinstance(one, Array) and _place(one) is None]
    if len(computed) > 1:
        raise Untraceable("several computed numbers as indices, in a loop over a size")
    if computed:
        (place,) = computed
        rest = a[(*keys[:place], slice(None), *keys[place + 1 :])]
        axis = sum(isinstance(one, slice) for one in keys[:place])
        return gathered(rest, keys[place]) if rest.loops else picked(rest, keys[place], axis)
    earlier = _left_by_a_turn(a, keys)
    if earlier is not None:
        return earlier
    _note(a, keys, write=False)
    used = {loop for one in keys for loop in _loops_of(one)}
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


def _map_of(key: Any, side: int, at: dict[TracedLoop, int], axis: int, inner: list[str], ranged: Any) -> AxisMap:
    """Returns the index map of one key along an axis; `inner` receives the extent of a kept axis."""
    if isinstance(key, slice) and depends([key]):
        start, stop = _place(key.start), _place(key.stop)
        first = (start.offset, start.step) if start else (linear(text_of(key.start or 0)), 0)
        last = (stop.offset, stop.step) if stop else None
        if last is None or first[1] != last[1] or key.step not in (None, 1):
            raise Untraceable("a slice whose length differs between the turns of a loop over a size")
        assert stop is not None
        inner.append(last[0].plus(first[0], -1).text())
        return AxisMap(first[0].text(), ((at[stop.loop], first[1]), (axis, 1)))
    place = _place(key)
    if place is not None:
        negative = not place.offset.terms and place.offset.constant < 0
        return AxisMap(place.offset.text(), ((at[place.loop], place.step),), WRAP if negative else ORDINARY)
    if isinstance(key, Array):
        raise Untraceable("several computed numbers as indices, in a loop over a size")
    one = ranged(key, side)
    if one.dropped:
        return AxisMap(one.start.text(), ())
    inner.append(one.length)
    return AxisMap(one.start.text(), ((axis, one.step),))


def _permutation(a: Array, maps: Sequence[AxisMap], sides: Sequence[str]) -> list[int] | None:
    """Returns the source axis of each result axis, if all are complete and each occurs once."""
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


def _loops_of(key: Any) -> Iterator[TracedLoop]:
    for one in (key.start, key.stop) if isinstance(key, slice) else (key,):
        if isinstance(one, Array):
            yield from one.loops


def _note(a: Array, keys: Sequence[Any], *, write: bool) -> None:
    """Refuses an iteration that reads what another one writes, other than the one before it."""
    for loop in {loop for one in keys for loop in _loops_of(one)}:
        signature = tuple((place, _signature(one)) for place, one in enumerate(keys) if loop in _loops_of(one))
        for number, (other, said) in enumerate(loop.reads if write else loop.writes):
            if other is not a or said == signature:
                continue
            if write and _lag(loop, a.builder, said, signature) and loop.others[number] == _others(loop, keys):
                loop.carried.shift = _shift(a.builder, signature)
                part = chosen(a, keys)
                shape = tuple(text_of(one) for one in part.shape)
                loop.carried.learn(loop.carried.reads, number, (shape, part.dtype.name))
            raise Untraceable("a loop over a size in which a turn needs what another one has left")
        (loop.writes if write else loop.reads).append((a, signature))
        loop.others += [] if write else [_others(loop, keys)]


def _others(loop: TracedLoop, keys: Sequence[Any]) -> tuple[int | str, ...]:
    """Returns the keys that do not depend on a loop."""
    return tuple(_signature(one) for one in keys if loop not in _loops_of(one))


def _lag(loop: TracedLoop, builder: Builder, read: Any, write: Any) -> bool:
    """True if an element that is read is the one that the turn before has assigned."""
    if len(read) != 1 or len(write) != 1 or read[0][0] != write[0][0]:
        return False
    if not all(isinstance(one[0][1], int) for one in (read, write)):
        return False
    first, second = (_linear_of(builder, one[0][1]) for one in (read, write))
    if first is None or second is None or first[2] != 1 or second[2] != 1:
        return False
    return second[1].plus(first[1], -1) == Linear((), -1 if loop.backwards else 1)


def _shift(builder: Builder, write: Any) -> int:
    """The number of elements by which an assigned one lies behind the turn's number."""
    found = _linear_of(builder, write[0][1])
    assert found is not None
    assert found[0] is not None
    apart = found[1].plus(linear(text_of(found[0].first_number)), -1)
    return apart.constant if not apart.terms else 0


def _is_late(loop: TracedLoop, keys: Sequence[Any]) -> bool:
    """True if the element is the one that the turn before has read by its own number, of a loop with an additional first turn."""
    places = [_place(one) for one in keys if loop in _loops_of(one)]
    if not loop.peeled or loop.backwards or len(places) != 1 or places[0] is None or places[0].step != 1:
        return False
    return places[0].offset.plus(linear(text_of(loop.first_number)), -1).constant == loop.carried.shift - 1


def _late(loop: TracedLoop, a: Array, keys: Sequence[Any]) -> Array:
    """The state that holds an element of the turn before, which that turn reads anyway."""
    now = chosen(a, [one + 1 if loop in _loops_of(one) else one for one in keys])
    shape = tuple(text_of(one) for one in now.shape)
    zero = a.builder.lift(0.0 if now.dtype.kind == "f" else 0)
    state = state_of(loop, a.builder, ("late", now.node), zero, shape, now.dtype.name)
    state.following = now
    return Array(a.builder, state.placeholder.node)


def _left_by_a_turn(a: Array, keys: Sequence[Any]) -> Array | None:
    """The state that stands for an element which the turn before has assigned, where an earlier trace has found that."""
    for loop in {loop for one in keys for loop in _loops_of(one)}:
        known = loop.carried.reads.get(len(loop.reads))
        if known is None and _is_late(loop, keys):
            return _late(loop, a, keys)
        if known is None:
            continue
        number = len(loop.reads)
        loop.reads.append((Array(a.builder, a.node), ()))
        loop.others.append(())
        place = next(place for place, one in enumerate(keys) if loop in _loops_of(one))
        at = loop.first_position() if loop.peeled else loop.first_position() - (-1 if loop.backwards else 1)
        start = Array(a.builder, a.node)[(*keys[:place], at, *keys[place + 1 :])]
        state = state_of(loop, a.builder, ("read", number), Array(a.builder, start.node), *known)
        state.held = a
        return first_or(loop, state.start, state)
    return None


def _signature(key: Any) -> int | str:
    return key.node if isinstance(key, Array) else str(key)


def assign(a: Array, keys: Sequence[Any], value: Any) -> None:
    """Handles `a[i] = value`, for all iterations."""
    _note(a, keys, write=True)
    places = [_place(one) for one in keys]
    if any(isinstance(one, Array) and place is None for one, place in zip(keys, places, strict=True)) or any(
        isinstance(one, slice) and depends([one]) for one in keys
    ):
        raise Untraceable("an assignment by a computed number, or to a slice, in a loop over a size")
    if any(place is not None and (place.step != 1 or place.loop in a.loops) for place in places):
        raise Untraceable("an assignment by a number that grows by more than one a turn")
    value = _following(a, keys, a.builder.lift(value))
    known = {place.loop for place in places if place is not None} | {*a.loops}
    if any(loop not in known for loop in value.loops):
        raise Untraceable("a loop over a size in which each turn assigns to the same elements")
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


def _following(a: Array, keys: Sequence[Any], value: Array) -> Array:
    """The assigned value: what the next turn reads, and in an additional first turn what is there already."""
    for loop in {loop for one in keys for loop in _loops_of(one)}:
        for state in loop.states:
            if state.held is a and state.key[0] == "read":
                state.following = cast(value, a.dtype)
        if loop.peeled:
            place = next(place for place, one in enumerate(keys) if loop in _loops_of(one))
            there = Array(a.builder, a.node)[(*keys[:place], loop.first_position(), *keys[place + 1 :])]
            first = in_first_turn(loop, Array(a.builder, there.node))
            if first is None:
                raise Untraceable("a loop from the second element on, beside a first one that cannot be traced")
            value = cast(where(loop.is_first(), first, value), value.dtype)
    return value


def accumulated(target: Array, other: Any, kind: str) -> Any:
    """Accumulates the sum or product over all iterations into an earlier array."""
    value = target.builder.lift(other)
    extra = [loop for loop in value.loops if loop not in target.loops]
    if not extra:
        return other
    if any(one is target for loop in extra for one, _ in loop.reads):
        raise Untraceable("a loop over a size in which a turn needs what another one has left")
    wide = broadcast_to(value, target.shape) if value.ndim < target.ndim else value
    kept = tuple(loop for loop in wide.loops if loop not in extra)
    places = [wide.loops.index(loop) for loop in (*kept, *extra)]
    whole = view_of(target.builder, wide.node, [*places, *range(len(wide.loops), len(wide.loops) + wide.ndim)], kept)
    return reduced(whole, kind, tuple(range(len(extra))))


def collected(several: Sequence[Any]) -> Array | None:
    """Stacks the results of all iterations of a finished loop along a new first axis; None for another list."""
    if len(several) != 1 or not isinstance(several[0], Array) or not any(loop.finished for loop in several[0].loops):
        return None
    one = several[0]
    over_ = [loop for loop in one.loops if loop.finished]
    if len(over_) != 1:
        raise Untraceable("a list of results of several loops")
    kept = tuple(loop for loop in one.loops if not loop.finished)
    places = [one.loops.index(loop) for loop in (*kept, *over_)]
    return view_of(one.builder, one.node, [*places, *range(len(one.loops), len(one.loops) + one.ndim)], kept)
