"""Loops over sizes in references: the body is traced once for all iterations, along an additional axis.

What depends on a loop's number is *batched*: its node has an axis for each such loop before its own ones, which the
stand-in does not show. Assignments by loop index, sums over all iterations and lists of results turn them into ordinary
axes again. An iteration that depends on another one is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from kernelmate.synthesis.arrays import Array, Builder
from kernelmate.synthesis.index_maps import ORDINARY, WRAP, AxisMap, Linear, linear
from kernelmate.synthesis.sizes import Dim, Untraceable, text_of

Axes: TypeAlias = "list[int | None]"


@dataclass(slots=True, eq=False)
class TracedLoop:
    """One loop: its place among the reference's loops, its number of iterations, and whether it has ended.

    Attributes:
        reads, writes: arrays that turns read or assign to, with the numbers that they do it by.
    """

    number: int
    count: int
    finished: bool
    reads: list[tuple[Array, object]]
    writes: list[tuple[Array, object]]


def turns(builder: Builder, start: int, stop: int) -> Iterator[Array]:
    """Yields all numbers from `start` to before `stop`, as a single iteration."""
    loop = TracedLoop(builder.loop_count, stop - start, False, [], [])
    builder.loop_count += 1
    builder.open.append(loop)
    index = builder.put("iota", (), [loop.count], np.int64, (), (loop,))
    before = _numbers(builder.file)
    yield index if text_of(start) == "0" else index + start
    after = _numbers(builder.file)
    carried = [name for name, value in before.items() if name in after and after[name] is not value]
    if carried:
        raise Untraceable(f"a loop over a size that carries {carried[0]} from turn to turn")
    loop.finished = True
    builder.open.remove(loop)


def _numbers(file: str) -> dict[str, Any]:
    """Returns local variables of the innermost running function of a file that hold valid arrays or numbers."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back  # type: ignore[assignment]
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
    if step != 1:
        raise Untraceable("a loop over a size with a step")
    return _LoopRange(builder, start, stop)


class _LoopRange:
    """A range whose length is a size."""

    def __init__(self, builder: Builder, start: int, stop: int) -> None:
        self._builder, self._start, self._stop = builder, start, stop

    def __iter__(self) -> Iterator[Array]:
        return turns(self._builder, self._start, self._stop)

    def __len__(self) -> int:
        return max(0, int(self._stop) - int(self._start))

    def __getitem__(self, key: Any) -> Any:
        raise Untraceable("a part of a range over a size")

    def __reversed__(self) -> Any:
        raise Untraceable("a loop over a size from its end")


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

    spread = [_spread(one, loops, len(shape) if op == "map" else one.ndim) for one in args]
    match op:
        case "map" | "cast" | "reshape" | "gather" | "along":
            shift = op == "along"
            return put(spread, (int(data[0]) + more,) if shift else data)
        case "view":
            return put(spread, (*range(more), *(None if one is None else one + more for one in data)))
        case "reduce" | "scan":
            return put(spread, (data[0], int(data[1]) + more, *data[2:]))
        case "window":
            return _window(builder, args, loops, shape, dtype, data)
        case "pick" | "take":
            axis = int(data[0]) if data else 0
            source, index = args
            if not index.loops:
                sides = (*lead, *shape)
                return builder.put("pick", [spread[0], index.node], sides, dtype, (axis + more,), loops)
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


def _spread(arg: Array, loops: tuple[TracedLoop, ...], rank: int) -> int:
    """Returns the node of an array with an axis for each loop, and `rank` of its own.

    New axes of length 1 are put before its own.
    """
    if not arg.loops:
        return arg.node
    front: Axes = [arg.loops.index(loop) if loop in arg.loops else None for loop in loops]
    own = [len(arg.loops) + place for place in range(arg.ndim)]
    return view_of(arg.builder, arg.node, [*front, *[None] * (rank - arg.ndim), *own], loops).node


def view_of(builder: Builder, node: int, axes: Sequence[int | None], loops: tuple[TracedLoop, ...]) -> Array:
    """Returns a view of a node with all its axes, batched by the loops of the first ones."""
    source = builder.nodes[node]
    if builder.batches.get(node, ()) == loops and list(axes) == list(range(len(source.shape))):
        return Array(builder, node)
    if source.op == "view":
        axes, node = [None if one is None else source.data[one] for one in axes], source.args[0]  # type: ignore[misc]
        source = builder.nodes[node]
    sides = [1 if one is None else builder.dim(source.shape[one]) for one in axes]
    return builder.put("view", [node], sides, source.dtype, axes, loops)


def _window(builder: Builder, args: Sequence[Array], loops: tuple[TracedLoop, ...], shape: Sequence[int], dtype: Any, data: Sequence[Any]) -> Array:  # fmt: skip
    """Returns parts of batched arrays, or of others with a batched index."""
    source, *rest = args
    more, sides = len(loops), [*(loop.count for loop in loops), *shape]
    moved = [AxisMap.of(one) for one in data]
    moved = [AxisMap(m.offset, tuple((axis + more, step) for axis, step in m.terms), m.beyond, m.every) for m in moved]
    if source.loops:
        moved = [*(AxisMap("0", ((place, 1),)) for place in range(more)), *moved]
    nodes = [_spread(source, loops, source.ndim)]
    for one in rest:
        node = _spread(one, loops, len(shape))
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


def chosen(a: Array, keys: Sequence[Any]) -> Array:
    """Handles `a[i]`, `a[i + 1, :]`, `a[i : i + 3]`, for all iterations."""
    from kernelmate.synthesis.functions import gathered, subscript
    from kernelmate.synthesis.indexed import picked
    from kernelmate.synthesis.slices import _range

    computed = [place for place, one in enumerate(keys) if isinstance(one, Array) and _place(one) is None]
    if len(computed) > 1:
        raise Untraceable("several computed numbers as indices, in a loop over a size")
    if computed:
        (place,) = computed
        rest = subscript(a, (*keys[:place], slice(None), *keys[place + 1 :]))
        axis = sum(isinstance(one, slice) for one in keys[:place])
        return gathered(rest, keys[place]) if rest.loops else picked(rest, keys[place], axis)
    _note(a, keys, write=False)
    used = {loop for one in keys for loop in _loops_of(one)}
    loops = tuple(sorted({*used, *a.loops}, key=lambda loop: loop.number))
    at = {loop: place for place, loop in enumerate(loops)}
    maps = [AxisMap("0", ((at[loop], 1),)) for loop in a.loops]
    inner: list[str] = []
    for key, side in zip(keys, a.shape, strict=True):
        maps.append(_map_of(key, side, at, len(loops) + len(inner), inner, _range))
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
    """Refuses an iteration that reads what another one writes."""
    signature = tuple(one.node if isinstance(one, Array) else str(one) for one in keys)
    for loop in {loop for one in keys for loop in _loops_of(one)}:
        if any(other is a and said != signature for other, said in (loop.reads if write else loop.writes)):
            raise Untraceable("a loop over a size in which a turn needs what another one has left")
        (loop.writes if write else loop.reads).append((a, signature))


def assign(a: Array, keys: Sequence[Any], value: Any) -> None:
    """Handles `a[i] = value`, for all iterations."""
    from kernelmate.synthesis.functions import subscript

    _note(a, keys, write=True)
    places = [_place(one) for one in keys]
    if any(isinstance(one, Array) and place is None for one, place in zip(keys, places, strict=True)) or any(
        isinstance(one, slice) and depends([one]) for one in keys
    ):
        raise Untraceable("an assignment by a computed number, or to a slice, in a loop over a size")
    if any(place is not None and (place.step != 1 or place.loop in a.loops) for place in places):
        raise Untraceable("an assignment by a number that grows by more than one a turn")
    value = a.builder.lift(value)
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
    part = subscript(a, tuple(plain))
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


def accumulated(target: Array, other: Any, kind: str) -> Any:
    """Accumulates the sum or product over all iterations into an earlier array."""
    from kernelmate.synthesis.functions import broadcast_to, reduced

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
