"""Graph of a traced reference: a few typed array operations with symbolic shapes, as data.

A dimension is an expression of the contract's language over its sizes (`rows`, `(2 * cols)`, `1`). The operations, with
their data, are:

- `input` (data: argument), `scalar` (argument), `size` (expression), `constant` (number), `iota` (the position along its one axis);
- `table` (numbers): constants along axes of fixed lengths, which schedules make of unrolled loops;
- `map` (NumPy's ufunc, or `where`) with NumPy's broadcasting, and `cast` to the node's dtype; with `searchsorted` (argument, side,
  length) each element's index in that argument, an ascending vector;
- `view` (for each axis the source's axis, or None for a new one of length 1), `reshape`;
- `reduce` (`sum`, `prod`, `max`, `min`, `argmax`, `argmin`, or `xor`, `and`, `or` of bits, and its axis, which is dropped);
- `take` along the first axis: element `[index[...], ...]` of the first operand;
- `gather` along the last axis: element `[..., index[...]]` of the first operand, with the index's shape;
- `pick` (axis): elements of an axis by index, the index's axes in its place; `along` (axis): NumPy's `take_along_axis`;
- `scan` (kind as of `reduce`, or `logaddexp`, axis, and whether from its end): the results of all beginnings of the axis;
- `state` (numbers of a loop, and of a value that it carries): that value before each iteration, an axis for the iterations;
- `recur` (numbers as of `state`, `all`, `before` or `last`, axis, whether from its end, iterations): a carried value after or before each iteration,
  or after the last one, where the axis is 1 long; operands are what all values of the loop begin with, then what follows a `state`;
- `scatter`: for each number i the sum of the second operand's elements or rows at the positions where the first operand is i; without a
  second operand, the number of those places; with data `max` or `min` the extreme element instead of the sum;
- `segment` (`sum`, `max` or `min`, and a minimum length): a reduction of the second operand's elements or rows from each offset in the
  first operand to the next, over at least that many. If there are as many offsets as results, the last segment ends with the operand.
- `repeat`: for each element, the value in the second operand of the row that it is in; rows begin at the offsets in the first operand.
- `window`: elements of the first operand by index maps (data: an `AxisMap` for each of its axes); where they leave it, elements of
  the second operand, which has the result's shape or is a number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelmate.records import Size
from kernelmate.source import evaluate as evaluate_expression
from kernelmate.synthesis.index_maps import ABOVE, OTHERWISE, REFLECT, SYMMETRIC, WRAP, AxisMap

Datum = str | int | float | bool | None

BITWISE: Mapping[str, np.ufunc] = {"xor": np.bitwise_xor, "and": np.bitwise_and, "or": np.bitwise_or}
"""NumPy's ufuncs for bitwise reductions."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operation; `args` are indices of earlier nodes, and `dtype` is the dtype's name in NumPy.

    `name` is the reference's local variable for the result, if it has one, and `line` the line of the operation, or 0 if it is not known;
    neither affects the equality of nodes.
    """

    op: str
    args: tuple[int, ...] = ()
    shape: tuple[str, ...] = ()
    dtype: str = "float64"
    data: tuple[Datum, ...] = ()
    name: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    @property
    def mapped(self) -> str:
        """Returns the function of an element-wise operation; "" for others, whose data may be an argument of such a name."""
        return str(self.data[0]) if self.op == "map" else ""


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in topological order.

    `outputs` are the nodes of the contract's out and inout arguments, in argument order.
    """

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    def text(self) -> str:
        """Returns the graph as JSON, which the worker sends; equal graphs have equal texts."""
        nodes = [[node.op, node.args, node.shape, node.dtype, node.data, node.name, node.line] for node in self.nodes]
        return json.dumps({"nodes": nodes, "outputs": self.outputs})

    @staticmethod
    def of(text: str) -> Graph:
        """Reads a graph from the result of `text`.

        Raises:
            ValueError: a constant is not a number.
        """
        held = json.loads(text)
        nodes = [
            Node(op, tuple(args), tuple(shape), dtype, tuple(data), name, line)
            for op, args, shape, dtype, data, name, line in held["nodes"]
        ]
        if any(node.op == "constant" and not isinstance(node.data[0], int | float) for node in nodes):
            raise ValueError("a constant of a graph is not a number")
        return Graph(tuple(nodes), tuple(held["outputs"]))

    def reduction_text(self, root: int) -> str:
        """Returns a reduction with its line, axis and array for a message."""
        node = self.nodes[root]
        source = self.nodes[node.args[0]]
        name = source.name or (str(source.data[0]) if source.op == "input" else "values")
        where = f" in line {node.line}" if node.line else ""
        return f"the {node.data[0]} along axis {node.data[1]} of {name}[{', '.join(source.shape)}]{where}"


def pruned(nodes: Sequence[Node], outputs: Sequence[int]) -> Graph:
    """Returns the graph of some outputs, without nodes that these do not depend on."""
    needed: set[int] = set()
    stack = list(outputs)
    while stack:
        index = stack.pop()
        if index not in needed:
            needed.add(index)
            stack += nodes[index].args
    order = {old: new for new, old in enumerate(sorted(needed))}
    kept = [replace(nodes[old], args=tuple(order[arg] for arg in nodes[old].args)) for old in order]
    return Graph(tuple(kept), tuple(order[one] for one in outputs))


def ufunc_of(name: str) -> Any:
    """Returns the NumPy ufunc of a `map` node, or an element-wise version of the function in `math`."""
    if name in ("cospi", "sinpi"):
        plain = getattr(np, name.removesuffix("pi"))
        return lambda turns: plain(np.pi * np.asarray(turns))
    return getattr(np, name, None) or np.vectorize(getattr(math, name), otypes=[float])


def evaluate(graph: Graph, values: Mapping[str, Any], size: Size) -> list[Any]:
    """Evaluates the outputs with NumPy, for arrays and scalars by name; this defines a graph's semantics."""
    evaluation = _GraphEvaluation(graph, values, size, {})
    return [evaluation.value(index) for index in graph.outputs]


class _GraphEvaluation:
    """Evaluation of a graph's nodes, in which the values of some `state` nodes may be given."""

    def __init__(self, graph: Graph, values: Mapping[str, Any], size: Size, states: Mapping[tuple[Datum, ...], Any]) -> None:  # fmt: skip
        self._graph, self._values, self._size, self._states = graph, values, size, states
        self._known: dict[int, Any] = {}

    def value(self, index: int) -> Any:
        if index not in self._known:
            node = self._graph.nodes[index]
            if node.op == "state":
                self._known[index] = self._states[node.data]
            elif node.op == "recur":
                self._known[index] = self._recurrence(node)
            else:
                args = [self.value(one) for one in node.args]
                self._known[index] = value_of(node, args, self._values, self._size)
        return self._known[index]

    def _recurrence(self, node: Node) -> Any:
        """Evaluates a recurrence by repetition: each evaluation of all iterations makes one more iteration correct."""
        loop, number, kind, axis, backwards, count = node.data
        place, turns = int(axis or 0), int(evaluate_expression(str(count), self._size))
        half = len(node.args) // 2
        starts = [np.asarray(self.value(one)) for one in node.args[:half]]
        shapes = {one.data: one.shape for one in self._graph.nodes if one.op == "state"}
        sides = [shapes.get((loop, place), node.shape) for place in range(half)]
        before = [
            np.broadcast_to(start, [int(evaluate_expression(side, self._size)) for side in shape])
            for start, shape in zip(starts, sides, strict=True)
        ]
        after = before
        for _ in range(turns):
            states = dict(self._states) | {(loop, state): one for state, one in enumerate(before)}
            inner = _GraphEvaluation(self._graph, self._values, self._size, states)
            after = [
                np.broadcast_to(inner.value(one), np.broadcast_shapes(np.shape(inner.value(one)), old.shape))
                for one, old in zip(node.args[half:], before, strict=True)
            ]
            before = [_delayed(start, one, place, bool(backwards)) for start, one in zip(starts, after, strict=True)]
        if kind == "last":
            return np.take(after[int(number or 0)], [0 if backwards else -1], axis=place)
        return (before if kind == "before" else after)[int(number or 0)]


def _delayed(start: Any, after: Any, place: int, backwards: bool) -> Any:
    """Returns the carried values before each iteration, from those after it."""
    turned = np.flip(after, place) if backwards else after
    shape = list(after.shape)
    shape[place] = 1
    early = np.concatenate([np.broadcast_to(start, shape), turned], axis=place)
    kept = np.delete(early, -1, axis=place)
    return np.flip(kept, place) if backwards else kept


def _indexed(node: Node, args: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Returns the value of a scan, or of an operation that selects elements by index."""
    if node.op == "scan":
        return _scan(node, args[0])
    if node.op == "repeat":
        rows = args[0].astype(np.int64)[: len(args[1])]
        return args[1][np.searchsorted(rows, np.arange(shape[0]), side="right") - 1]
    if node.op in ("scatter", "segment"):
        return _summed(node, args, shape)
    source, index = args[0], args[1].astype(np.int64)
    if node.op == "gather":
        return np.take_along_axis(source, index[..., None], axis=-1)[..., 0]
    axis = int(node.data[0] or 0) if node.data else 0
    if node.op == "along":
        return np.take_along_axis(source, np.broadcast_to(index, shape), axis)
    return np.take(source, index, axis)


def _scan(node: Node, array: Any) -> Any:
    kind, axis, backwards = node.data
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "logaddexp": np.logaddexp}[
        str(kind)
    ]
    place = int(axis or 0)
    return (
        np.flip(ufunc.accumulate(np.flip(array, place), place), place) if backwards else ufunc.accumulate(array, place)
    )


def _summed(node: Node, args: Sequence[Any], shape: tuple[int, ...]) -> Any:
    if node.op == "segment":
        return _segments(node, args[0].astype(np.int64), np.asarray(args[1]), shape)
    if node.data:
        largest, dtype = node.data[0] == "max", np.dtype(node.dtype)
        limits = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        ufunc, start = (np.maximum, limits[0]) if largest else (np.minimum, limits[1])
        extremes = np.full(shape, start, dtype)
        ufunc.at(extremes, args[0], args[1])
        return extremes
    total = np.zeros(shape, node.dtype)
    np.add.at(total, args[0], args[1] if len(args) > 1 else 1)
    return total


def _segments(node: Node, offsets: Any, values: Any, shape: tuple[int, ...]) -> Any:
    kind, fewest = node.data
    ends = np.append(offsets, len(values))[1 : shape[0] + 1]
    lengths = np.maximum(ends - offsets[: shape[0]], int(fewest or 0))
    results = np.arange(shape[0]).repeat(lengths)
    elements = np.arange(len(results)) + (offsets[: shape[0]] - np.cumsum(lengths) + lengths).repeat(lengths)
    ufunc, start = {"sum": (np.add, 0), "max": (np.maximum, -np.inf), "min": (np.minimum, np.inf)}[str(kind)]
    total = np.full(shape, start, node.dtype)
    ufunc.at(total, results, values[elements])
    return total


def _window(node: Node, args: Sequence[Any], shape: tuple[int, ...], size: Size) -> Any:
    source = np.asarray(args[0])
    positions = np.indices(shape, sparse=True)
    inside = np.ones(shape, dtype=bool)
    index = []
    for entry, side in zip(node.data, source.shape, strict=True):
        axis = AxisMap.of(entry)
        at = np.asarray(int(evaluate_expression(axis.offset, size)))
        for place, step in axis.terms:
            at = at + step * positions[place]
        inside &= at % axis.every == 0
        at = at // axis.every
        if axis.beyond == WRAP:
            at = at % max(side, 1)
        elif axis.beyond in (REFLECT, SYMMETRIC):
            outer = int(axis.beyond == SYMMETRIC)
            at = np.where(at < 0, -at - outer, np.where(at >= side, 2 * (side - 1) + outer - at, at))
        elif axis.beyond in (OTHERWISE, ABOVE):
            inside &= (at < side) & ((at >= 0) | (axis.beyond == ABOVE))
        index.append(np.clip(at, 0, max(side - 1, 0)))
    if not source.size:
        return np.broadcast_to(args[1] if len(args) > 1 else np.zeros(1, source.dtype), shape)
    chosen = np.broadcast_to(source[tuple(index)], shape)
    return chosen if len(args) == 1 else np.where(inside, chosen, args[1])


def _mapped(node: Node, args: Sequence[Any], values: Mapping[str, Any]) -> Any:
    if node.data[0] == "searchsorted":
        _, table, side, _ = map(str, node.data)
        return np.searchsorted(values[table], args[0], side=side)  # type: ignore[call-overload]
    return np.where(*args) if node.data[0] == "where" else ufunc_of(str(node.data[0]))(*args)


def value_of(node: Node, args: Sequence[Any], values: Mapping[str, Any], size: Size) -> Any:
    """Returns the value of a node from those of its arguments, of the reference's arguments by name, and of the sizes."""
    shape = tuple(int(evaluate_expression(dim, size)) for dim in node.shape)
    match node.op:
        case "input" | "scalar":
            return np.asarray(values[str(node.data[0])])
        case "size":
            return np.asarray(evaluate_expression(str(node.data[0]), size))
        case "constant":
            return np.broadcast_to(np.asarray(node.data[0], dtype=node.dtype), shape)
        case "table":
            return np.asarray(node.data, dtype=node.dtype).reshape(shape)
        case "iota":
            return np.arange(shape[0])
        case "map":
            return _mapped(node, args, values)
        case "cast":
            return np.asarray(args[0]).astype(node.dtype)
        case "view":
            kept = [int(axis) for axis in node.data if axis is not None]
            source = np.asarray(args[0])
            dropped = tuple(axis for axis in range(source.ndim) if axis not in kept)
            order = [sum(other not in dropped for other in range(axis)) for axis in kept]
            return source.squeeze(dropped).transpose(order).reshape(shape)
        case "reshape":
            return args[0].reshape(shape)
        case "reduce":
            kind, axis = str(node.data[0]), int(node.data[1] or 0)
            return (
                BITWISE[kind].reduce(args[0], axis=axis) if kind in BITWISE else getattr(np, kind)(args[0], axis=axis)
            )
        case "take" | "gather" | "pick" | "along" | "scan" | "scatter" | "segment" | "repeat":
            return _indexed(node, args, shape)
    return _window(node, args, shape, size)


def sorted_graph(nodes: Sequence[Node], outputs: Sequence[int]) -> Graph:
    """Returns a graph from nodes in any order, without those that the outputs do not need."""
    order: dict[int, int] = {}
    stack = [(one, False) for one in reversed(outputs)]
    while stack:
        index, done = stack.pop()
        if done:
            order.setdefault(index, len(order))
        elif index not in order:
            stack.append((index, True))
            stack += [(one, False) for one in reversed(nodes[index].args)]
    kept = [replace(nodes[old], args=tuple(order[one] for one in nodes[old].args)) for old in order]
    return Graph(tuple(kept), tuple(order[one] for one in outputs))
