"""Loops over sizes in references: the body is traced once for all iterations, along an additional axis.

A value that depends on a loop's index is *batched*: its node has an additional leading axis for each loop it depends on, which
the traced array does not show. Assignments by loop index, sums over all iterations and lists of results turn these into
ordinary axes again. Loops in which an iteration depends on another one are refused, unless they are recurrences.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, Builder
from kernelmate.synthesis.counted import FEWEST
from kernelmate.synthesis.index_maps import AxisMap, linear
from kernelmate.synthesis.primitives import spread, view_of
from kernelmate.synthesis.ragged import row_bounds
from kernelmate.synthesis.recurrences import Again, Carried, State, begun, ended
from kernelmate.synthesis.sizes import Dim, Untraceable, text_of


@dataclass(slots=True, eq=False)
class TracedLoop:
    """One loop: its position among the reference's loops, its number of iterations, and whether it has ended.

    Attributes:
        builder: the graph's builder.
        first_number: the smallest index.
        carried: facts that earlier traces have found about the loop.
        backwards: True if its index decreases.
        peeled: number of additional first iterations, at most two, that compute nothing.
        reads, writes: arrays that iterations read or assign to, with the indices that they use.
        others: the indices of each read that do not depend on the loop.
        late: reads of elements of earlier iterations, which the loop has not assigned so far: the array, the read's number,
            and the number of iterations.
        picks: arrays of which iterations read elements at computed indices, with the values read.
        sums: arrays into which all iterations accumulate, with their nodes before and after.
        states: carried values.
        grown, assigned: arrays of which iterations read slices up to or from their index, and those to which they assign.
        rows: for a loop over a row's elements between two offsets, the offsets and the loop over rows; its own index
            then counts the elements of all rows.
    """

    number: int
    builder: Builder
    first_number: int
    count: int
    carried: Carried
    backwards: bool = False
    peeled: int = 0
    finished: bool = False
    reads: list[tuple[Array, object]] = field(default_factory=list)
    writes: list[tuple[Array, object]] = field(default_factory=list)
    others: list[object] = field(default_factory=list)
    late: list[tuple[Array, int, int]] = field(default_factory=list)
    picks: list[tuple[Array, int]] = field(default_factory=list)
    sums: list[tuple[Array, int, int]] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    grown: list[Array] = field(default_factory=list)
    assigned: list[Array] = field(default_factory=list)
    rows: tuple[Array, TracedLoop] | None = None

    def first(self) -> int:
        """Returns the index of the first iteration."""
        return self.first_number + self.count - 1 if self.backwards else self.first_number

    def first_position(self) -> int:
        """Returns the position of the first iteration's element along an assigned array."""
        return self.first() + self.carried.shift

    def index(self) -> Array:
        """Returns the iteration's index."""
        made = self.builder.put("iota", (), [self.count], np.int64, (), (self,))
        return made if text_of(self.first_number) == "0" else made + self.first_number

    def is_first(self) -> Array:
        """Returns a condition that is true in the first iteration, and in additional ones that compute nothing."""
        count = self.builder.put("iota", (), [self.count], np.int64, (), (self,))
        early: Array = count < self.peeled if self.peeled > 1 else count == (self.count - 1 if self.backwards else 0)
        return early


def turns(builder: Builder, start: int, stop: int, *, backwards: bool = False, rows: tuple[Array, TracedLoop] | None = None) -> Iterator[Array]:  # fmt: skip
    """Yields the loop's index from `start` to before `stop` once, for all iterations; `rows` as in `TracedLoop`."""
    loop = _opened(builder, start, stop, backwards=backwards)
    loop.rows = rows
    frame = _frame(builder.file)
    before = _numbers(frame)
    nodes = {name: value.recorded for name, value in before.items() if isinstance(value, Array)}
    begun(loop, builder, frame, before)
    yield loop.index()
    after = _numbers(frame)
    _learn(loop, before, nodes, after)
    ended(loop, builder, frame, after)
    loop.finished = True
    builder.open.remove(loop)


def _opened(builder: Builder, start: int, stop: int, *, backwards: bool) -> TracedLoop:
    """Returns a new loop.

    A loop that starts late, because elements before its start are given, gets additional iterations for these.
    """
    carried = builder.carried.setdefault(builder.loop_count, Carried())
    peeled = 0
    if carried.locals or carried.reads:
        early = [count for count in (1, 2) if text_of(start) == str(count - carried.shift) and not backwards]
        peeled = early[0] if early and (early == [1] or 2 in carried.lags.values()) else 0
        start = -carried.shift if peeled else start
        above = linear(text_of(stop)).plus(1).text()
        if backwards and above.isidentifier():
            peeled, stop = 1, builder.dim(above)
    count = builder.dim(linear(text_of(stop)).plus(carried.shift).text()) if peeled and not backwards else stop - start
    loop = TracedLoop(builder.loop_count, builder, start, count, carried, backwards, peeled)
    builder.loop_count += 1
    builder.open.append(loop)
    return loop


def _learn(loop: TracedLoop, before: dict[str, Any], nodes: dict[str, int], after: dict[str, Any]) -> None:
    """Finds locals that an iteration has changed.

    Raises:
        Again: there are locals that no earlier trace has found.
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
    """Returns True if an array is changed in place other than by assignments by loop index, or sums over iterations."""
    if loop in value.adding or value.node == before or any(one is value for one, _ in loop.writes):
        return False
    summed = [(old, new) for one, old, new in loop.sums if one is value]
    if not summed or summed[0][0] != before or summed[-1][1] != value.node:
        return True
    nodes = loop.builder.nodes
    own = {new for _, new in summed}
    return len(summed) > 1 or any(summed[0][1] in node.args for place, node in enumerate(nodes) if place not in own)


def _frame(file: str) -> types.FrameType | None:
    """Returns the frame of the innermost running function of a file."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return frame


def local_name(array: Array) -> str | None:
    """Returns the name of the reference's local variable that holds an array."""
    held = _numbers(_frame(array.builder.file))
    return next((name for name, value in held.items() if value is array), None)


def _numbers(frame: types.FrameType | None) -> dict[str, Any]:
    """Returns a function's local variables that are valid arrays or numbers."""
    held = {} if frame is None else frame.f_locals
    kinds = (Array, int, float)
    dead = [
        name
        for name, value in held.items()
        if isinstance(value, Array) and any(one.finished for one in value.builder.batches.get(value.recorded, ()))
    ]
    return {name: value for name, value in held.items() if isinstance(value, kinds) and name not in dead}


def loop_range(builder: Builder, *bounds: Any) -> Any:
    """Replaces `range`: a range whose bound is a size yields one index for all iterations."""
    if any(isinstance(one, Array) for one in bounds):
        rows = row_bounds(builder, *bounds) if len(bounds) == 2 else None
        if rows is None:
            raise Untraceable("a loop whose length depends on a value, or on another loop")
        elements = builder.carried.setdefault(builder.loop_count, Carried()).elements
        return _LoopRange(builder, 0, builder.dim(elements or "1"), rows=rows)
    if not any(isinstance(one, Dim) for one in bounds):
        if len(range(*bounds)) < FEWEST or len(bounds) > 2:
            return range(*bounds)
        builder.long_loops += 1
        if not builder.repeats:
            return range(*bounds)
        bounds = tuple(builder.dim(str(one)) for one in bounds)
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if step == -1:
        first, last = (builder.dim(linear(text_of(one)).plus(1).text()) for one in (stop, start))
        return _LoopRange(builder, first, last, backwards=True)
    if step != 1:
        raise Untraceable("a loop over a size with a step")
    return _LoopRange(builder, start, stop)


class _LoopRange:
    """A range whose length is a size."""

    def __init__(self, builder: Builder, start: int, stop: int, *, backwards: bool = False, rows: tuple[Array, TracedLoop] | None = None) -> None:  # fmt: skip
        self._builder, self._start, self._stop, self._backwards, self._rows = builder, start, stop, backwards, rows

    def __iter__(self) -> Iterator[Array]:
        return turns(self._builder, self._start, self._stop, backwards=self._backwards, rows=self._rows)

    def __len__(self) -> int:
        return max(0, int(self._stop) - int(self._start))

    def __getitem__(self, key: Any) -> Any:
        raise Untraceable("a part of a range over a size")

    def __reversed__(self) -> Iterator[Array]:
        return iter(_LoopRange(self._builder, self._start, self._stop, backwards=not self._backwards))


def over(array: Array) -> Iterator[Any]:
    """Iterates over an array along its first axis."""
    for index in turns(array.builder, 0, array.shape[0]):
        yield array[index]


def loop_enumerate(values: Any, start: Any = 0) -> Any:
    """Replaces `enumerate`; over a traced array, all iterations are one."""
    if not isinstance(values, Array) or _is_short(values):
        return enumerate(values, start)
    return ((index + start if start else index, values[index]) for index in turns(values.builder, 0, values.shape[0]))


def loop_zip(*several: Any, **keywords: Any) -> Any:
    """Replaces `zip`; over traced arrays, all iterations are one."""
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
    """Returns the result of an operation on arrays of which some are batched."""
    args = _in_elements(args)
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
    raise Untraceable(f"{op} of values that differ between the iterations of a loop over a size")


def _in_elements(args: Sequence[Array]) -> Sequence[Array]:
    """Returns operands in which values of rows are repeated for each of the rows' elements, where needed."""
    for inner in {loop for one in args for loop in one.loops if loop.rows is not None}:
        assert inner.rows is not None
        offsets, outer = inner.rows
        args = [
            one.builder.put("repeat", [offsets.node, one.node], [inner.count, *one.shape], one.dtype, (), (inner,))
            if one.loops == (outer,)
            else one
            for one in args
        ]
    return args


def _merged(args: Sequence[Array]) -> tuple[TracedLoop, ...]:
    """Returns the loops of some arrays, outermost first."""
    loops = sorted({loop for one in args for loop in one.loops}, key=lambda loop: loop.number)
    if any(loop.finished for loop in loops):
        raise Untraceable("a value of a loop's last iteration, after the loop")
    return tuple(loops)


def _window(builder: Builder, args: Sequence[Array], loops: tuple[TracedLoop, ...], shape: Sequence[int], dtype: Any, data: Sequence[Any]) -> Array:  # fmt: skip
    """Returns a window of batched arrays, or of other arrays by a batched index."""
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
