"""Values that a loop over a size carries between iterations: sums, products and extremes become scans, others `recur`.

A loop's body is traced once for all iterations. A reference whose body changes a local from before the loop is
therefore traced again, with a `state` node in place of the local: its value before each iteration. Reads of `y[t - 1]`
together with an assignment to `y[t]` are states as well. A loop that begins at 1 because the first element is given is
traced from 0, with a selection in the first iteration, so that every array is indexed along its whole axis.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmate.synthesis.arrays import Array, Builder, broadcast, cast
from kernelmate.synthesis.carried_scans import scanned_state
from kernelmate.synthesis.graph import Graph, Node, pruned
from kernelmate.synthesis.index_maps import ORDINARY, OTHERWISE, AxisMap, linear
from kernelmate.synthesis.primitives import spread, view_of, where
from kernelmate.synthesis.sizes import Untraceable, text_of

if TYPE_CHECKING:
    from kernelmate.synthesis.loops import TracedLoop

ALL, BEFORE, LAST = "all", "before", "last"
"""Results of a recurrence: the values after all iterations, the values before them, and the value after the last one.
"""


class Again(Exception):
    """Raised if the reference must be traced again, because the trace found another value that a loop carries."""


@dataclass(slots=True)
class Carried:
    """Facts about a loop from earlier traces.

    Attributes:
        locals: shape and dtype of each carried local by name.
        reads: shape and dtype of reads of elements that earlier iterations assigned, by position among the loop's
            reads.
        lags: for each such read, the number of iterations since the assignment.
        in_place: the names of carried arrays that are changed in place.
        shift: the offset of an assigned element from the iteration's index.
        elements: for a loop over a row's elements between offsets, the number of elements of all rows.
    """

    locals: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    reads: dict[int, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    lags: dict[int, int] = field(default_factory=dict)
    in_place: set[str] = field(default_factory=set)
    shift: int = 0
    elements: str = ""

    def learn(self, where: dict[Any, Any], key: Any, value: tuple[tuple[str, ...], str]) -> None:
        """Records a carried value, or its new shape and dtype.

        Raises:
            Again: always.
        """
        where[key] = value
        raise Again


@dataclass(slots=True, eq=False)
class State:
    """One carried value of a loop.

    Attributes:
        key: its key in `Carried`.
        placeholder: the value before each iteration.
        start: the value before the first one.
        held: the object of an array that is changed in place.
        following: the value after each iteration.
    """

    key: tuple[str, Any]
    placeholder: Array
    start: Array
    held: Array | None = None
    following: Array | None = None


def begun(loop: TracedLoop, builder: Builder, frame: types.FrameType | None, before: Mapping[str, Any]) -> None:
    """Replaces each local that the loop is known to carry by a state."""
    rebound: dict[str, Any] = {}
    for name, (shape, dtype) in loop.carried.locals.items():
        value = before[name]
        start = Array(builder, value.node) if isinstance(value, Array) else builder.lift(value)
        state = state_of(loop, builder, ("local", name), start, shape, dtype)
        builder.called(name, state.placeholder.node)
        given = first_or(loop, start, state)
        if type(value) is Array and name in loop.carried.in_place:
            state.held = value
            value._node = given.node
        else:
            rebound[name] = given
    if rebound and frame is not None:
        _rebind(frame, rebound)


def _rebind(frame: types.FrameType, values: Mapping[str, Any]) -> None:
    """Changes the values of local variables of a running function."""
    held = frame.f_locals
    held.update(values)
    if sys.version_info < (3, 13):  # from 3.13 on, `f_locals` writes through (PEP 667)
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def state_of(
    loop: TracedLoop, builder: Builder, key: tuple[str, Any], start: Array, shape: Sequence[str], dtype: str
) -> State:
    """Adds a state to a loop."""
    loops = tuple(builder.open)
    sides = [*(one.count for one in loops), *(builder.dim(text) for text in shape)]
    placeholder = builder.put("state", (), sides, dtype, (loop.number, len(loop.states)), loops)
    state = State(key, placeholder, start)
    loop.states.append(state)
    return state


def first_or(loop: TracedLoop, start: Array, state: State) -> Array:
    """Returns the value before an iteration.

    A start value that is an element of an array is selected in the first iteration.
    """
    placeholder = Array(start.builder, state.placeholder.node)
    if loop.peeled:
        return placeholder
    chosen = in_first_turn(loop, start)
    if chosen is None or not chosen.loops or loop not in chosen.loops:
        return placeholder
    state.start = _nothing(state)
    return _where_first(loop, chosen, placeholder)


def _nothing(state: State) -> Array:
    return state.placeholder.builder.lift(0.0 if state.placeholder.dtype.kind == "f" else 0)


def _where_first(loop: TracedLoop, first: Array, other: Array) -> Array:
    found: Array = where(loop.is_first(), first, other)
    return cast(found, other.dtype)


def ended(loop: TracedLoop, builder: Builder, frame: types.FrameType | None, after: Mapping[str, Any]) -> None:
    """Determines each state's value after an iteration, and sets its local to the value after the loop.

    Raises:
        Again: a state has another shape or dtype than recorded.
    """
    for state in loop.states:
        kind, key = state.key
        if kind == "local":
            value = state.held if state.held is not None else after.get(key)
            state.following = None if value is None else Array(builder, builder.lift(value).node)
        if state.following is None:
            raise Untraceable(f"a loop over a size that carries {key} from iteration to iteration")
        _check(loop, builder, state)
    solved = {state.key: _solved(loop, builder, state) for state in loop.states}
    rebound: dict[str, Any] = {}
    for state in loop.states:
        kind, name = state.key
        if kind != "local":
            continue
        last = solved[state.key]
        if state.held is not None:
            state.held._node = last.node
        else:
            rebound[name] = last
    if rebound and frame is not None:
        _rebind(frame, rebound)


def _check(loop: TracedLoop, builder: Builder, state: State) -> None:
    assert state.following is not None
    if state.key[0] in ("late", "before"):
        return
    shape = broadcast([state.start.shape, state.following.shape])
    texts = tuple(text_of(one) for one in shape)
    dtype = np.result_type(state.start.dtype, state.following.dtype)
    if dtype.kind == "f":
        dtype = np.dtype(np.float64)
    node = builder.nodes[state.placeholder.node]
    if (texts, dtype.name) != (node.shape[len(builder.open) :], node.dtype):
        kind, key = state.key
        loop.carried.learn(loop.carried.locals if kind == "local" else loop.carried.reads, key, (texts, dtype.name))
    if loop.peeled:
        first = in_first_turn(loop, state.start) if loop.peeled == 1 or state.key[0] == "read" else None
        if first is None and loop.peeled > 1 and state.key[0] == "read":
            raise Untraceable("a loop from the third element on, beside first ones that cannot be traced")
        state.following = _where_first(loop, state.start if first is None else first, state.following)
        state.start = _nothing(state)
    state.following = cast(state.following, dtype)


def _solved(loop: TracedLoop, builder: Builder, state: State) -> Array:
    """Records the replacements of a state and its next value; returns the value after the last iteration."""
    assert state.following is not None
    found = scanned_state(loop, builder, state)
    if found is not None:
        return found
    number = loop.states.index(state)
    following = state.following.node
    before = _recurrence(loop, builder, number, BEFORE)
    builder.instead[state.placeholder.node] = before.node, loop.number
    if builder.depends(following, loop.number) and builder.nodes[following].op != "state":
        builder.instead[following] = _recurrence(loop, builder, number, ALL).node, loop.number
    last = _recurrence(loop, builder, number, LAST)
    return _without_loop(loop, builder, last.node, state.placeholder.ndim)


def _without_loop(loop: TracedLoop, builder: Builder, node: int, rank: int) -> Array:
    """Returns a view of a node without a loop's axis, which has length 1."""
    loops = tuple(builder.open)
    place = loops.index(loop)
    kept = tuple(one for one in loops if one is not loop)
    axes = [axis for axis in range(len(loops) + rank) if axis != place]
    return view_of(builder, node, axes, kept)


def _recurrence(loop: TracedLoop, builder: Builder, number: int, kind: str) -> Array:
    loops = tuple(builder.open)
    state = loop.states[number]
    place = loops.index(loop)
    args = [_with_turn_axis(one, loops) for one in loop.states]
    args += [spread(one.following, loops, one.placeholder.ndim) for one in loop.states if one.following is not None]
    sides = [builder.dim(text) for text in builder.nodes[state.placeholder.node].shape]
    count = text_of(sides[place])
    if kind == LAST:
        sides[place] = 1
    data = (loop.number, number, kind, place, loop.backwards, count)
    return builder.put("recur", args, sides, state.placeholder.dtype, data, loops)


def _with_turn_axis(state: State, loops: tuple[TracedLoop, ...]) -> int:
    """Returns the node of a start value with an axis of length 1 for each loop; numbers are unchanged."""
    start, rank = state.start, state.placeholder.ndim
    if start.loops or not start.ndim:
        return spread(start, loops, rank)
    return view_of(start.builder, start.node, [None] * (len(loops) + rank - start.ndim) + [*range(start.ndim)], ()).node


def without_unread(graph: Graph) -> Graph:
    """Returns a graph without carried values that nothing reads, such as locals that each iteration assigns first."""
    read = {node.data[:2] for node in graph.nodes if node.op in ("state", "recur")}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op in ("state", "recur"):
            loop, number, *rest = node.data
            kept = sorted(int(one or 0) for other, one in read if other == loop)
            half = len(node.args) // 2
            args = tuple(node.args[first + one] for first in (0, half) for one in kept if node.args)
            node = replace(node, args=args, data=(loop, kept.index(int(number or 0)), *rest))
        nodes.append(node)
    found = pruned(nodes, graph.outputs)
    return found if found == graph else without_unread(found)


def in_first_turn(loop: TracedLoop, a: Array) -> Array | None:
    """Returns a value for every iteration that equals the loop's start value in the first iteration.

    Elements at the first iteration's position become elements at each iteration's position. The result is None if there
    is no value for every iteration.
    """
    builder, node = a.builder, a.builder.nodes[a.node]
    if node.op in ("constant", "scalar", "size", "input", "state"):
        return a
    if node.op in ("map", "cast"):
        found = [in_first_turn(loop, Array(builder, one)) for one in node.args]
        if any(one is None for one in found):
            return None
        args = [one for one in found if one is not None]
        own = len(a.loops)
        shape = [builder.dim(text) for text in node.shape[own:]]
        return builder.add(node.op, args, shape, node.dtype, node.data)
    if node.op == "view":
        source = in_first_turn(loop, Array(builder, node.args[0]))
        if source is None or loop not in source.loops:
            return None if source is None else view_of(builder, source.node, node.data, a.loops)  # type: ignore[arg-type]
        place, loops = source.loops.index(loop), _sorted({*a.loops, loop})
        moved = [None if one is None else int(one) + (int(one) >= place) for one in node.data]
        order = [place if one is loop else moved[a.loops.index(one)] for one in loops]
        return view_of(builder, source.node, [*order, *moved[len(a.loops) :]], loops)
    if node.op == "window":
        return _element_in_first_turn(loop, a, node)
    return None


def _sorted(loops: set[TracedLoop]) -> tuple[TracedLoop, ...]:
    return tuple(sorted(loops, key=lambda one: one.number))


def _element_in_first_turn(loop: TracedLoop, a: Array, node: Node) -> Array | None:
    builder = a.builder
    own = len(a.loops)
    source = builder.nodes[node.args[0]]
    maps = [AxisMap.of(one) for one in node.data]
    if len(node.args) == 2:
        return None
    fixed: int | None = None
    axes: dict[int, int] = {}
    for place, one in enumerate(maps):
        whole = len(one.terms) == 1 and one.offset == "0" and one.terms[0][1] == 1
        at = one.terms[0][0] if one.terms else None
        if whole and at is not None and linear(node.shape[at]) == linear(source.shape[place]) and node.shape[at] != "1":
            axes[at] = place
            continue
        single = not one.terms or (len(one.terms) == 1 and node.shape[one.terms[0][0]] == "1")
        if not single or linear(one.offset) != linear(text_of(loop.first_position())) or fixed is not None:
            return None
        fixed = place
    given = _given_element(loop, a, node, fixed, axes) if loop.peeled < 2 or source.op == "constant" else None
    if given is not None or fixed is None or linear(source.shape[fixed]) != linear(text_of(loop.count)):
        return given
    loops = _sorted({*a.loops, loop})
    order: list[int | None] = [fixed if one is loop else axes.get(a.loops.index(one)) for one in loops]
    order += [axes.get(axis) for axis in range(own, len(node.shape))]
    return view_of(builder, node.args[0], order, loops)


def _given_element(loop: TracedLoop, a: Array, node: Node, fixed: int | None, axes: Mapping[int, int]) -> Array | None:
    """Returns an array's first element if only that has been assigned, or the value of a constant array; else None."""
    builder, source = a.builder, a.builder.nodes[node.args[0]]
    if source.op == "constant":
        return builder.put(
            "constant", (), [builder.dim(text) for text in node.shape], source.dtype, source.data, a.loops
        )
    if fixed is None:
        return None
    if source.op != "window" or len(source.args) != 2:
        return None
    inner = [AxisMap.of(one) for one in source.data]
    value = builder.nodes[source.args[0]]
    at = linear(text_of(loop.first_position())).plus(linear(inner[fixed].offset))
    others = all(
        one.beyond == ORDINARY and one.terms == ((place, 1),) for place, one in enumerate(inner) if place != fixed
    )
    if not others or inner[fixed].beyond != OTHERWISE or value.shape[fixed] != "1" or at != linear("0"):
        return None
    order = [axes.get(axis) for axis in range(len(node.shape))]
    return in_first_turn(loop, view_of(builder, source.args[0], order, a.loops))
