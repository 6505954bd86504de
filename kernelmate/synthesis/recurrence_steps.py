"""Steps of a loop that carries values: its results and the values after a step, in terms of the values before it.

Sums, products and extremes over all steps become further carried values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.index_maps import AxisMap
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.recurrences import ALL, BEFORE, LAST

_COMBINED: Mapping[str, tuple[str, float]] = {
    "sum": ("add", 0.0), "prod": ("multiply", 1.0), "max": ("maximum", -math.inf), "min": ("minimum", math.inf),
}  # fmt: skip
"""For each reduction over the steps, the ufunc that takes one more value, and the value before the first step."""


@dataclass(frozen=True, slots=True)
class LoopValue:
    """One value that a loop carries.

    Attributes:
        shape: its shape, with the number of steps at `axis`.
        start: the node of the value before the first step.
        following: the node of the value after a step.
    """

    shape: tuple[str, ...]
    axis: int
    start: int
    following: int
    name: str

    @property
    def sides(self) -> tuple[str, ...]:
        """The shape of the value before or after one step."""
        return (*self.shape[: self.axis], *self.shape[self.axis + 1 :])


@dataclass(frozen=True, slots=True)
class LoopSteps:
    """A loop that carries values.

    Attributes:
        graph: in terms of `state` nodes, the values before a step, and of `recur` nodes without operands, the values after
            the last step.
        carried: the values in the order of the nodes' numbers.
        of_steps: for each output, True if it has elements for each step.
        count: the number of steps.
        backwards: True if the last one is first.
    """

    graph: Graph
    carried: tuple[LoopValue, ...]
    of_steps: tuple[bool, ...]
    count: str
    backwards: bool


def loop_steps(graph: Graph) -> LoopSteps:
    """Returns the steps of a graph's only loop that carries values.

    Raises:
        Refused: several loops or none carry values, or the graph combines values of several steps otherwise than by reductions.
    """
    loops = {(node.data[0], node.data[3:], node.args) for node in graph.nodes if node.op == "recur"}
    if len(loops) != 1:
        raise Refused("it has recurrences of several loops" if loops else "it carries no values from step to step")
    return _Rewriting(graph, next(node for node in graph.nodes if node.op == "recur")).steps()


class _Rewriting:
    """Rewrites a graph's nodes in terms of the values before a step.

    Attributes:
        nodes: the graph's nodes, then new ones.
        carried: for each value, the node before a step, and those of its start and of its value after a step.
    """

    def __init__(self, graph: Graph, recurrence: Node) -> None:
        self.graph, self.nodes = graph, list(graph.nodes)
        self.loop, _, _, self.axis, backwards, self.count = recurrence.data
        self.backwards = bool(backwards)
        self._axes: dict[int, int | None] = {}
        self._within: dict[int, int] = {}
        self._after: dict[int, int] = {}
        self._sums: dict[tuple[str, int], int] = {}
        self._own_axes: dict[int, int] = {}
        half = len(recurrence.args) // 2
        shapes = {one.data[1]: one.shape for one in graph.nodes if one.op == "state"}
        shapes |= {one.data[1]: one.shape for one in graph.nodes if one.op == "recur" and one.data[2] != LAST}
        lasts = {one.data[1]: one.shape for one in graph.nodes if one.op == "recur" and one.data[2] == LAST}
        place = int(self.axis or 0)
        self.carried: list[tuple[int, int, int]] = []
        for number in range(half):
            last = lasts.get(number)
            shape = shapes.get(number) or (*(last or ())[:place], str(self.count), *(last or ())[place + 1 :])
            before = self._add(Node("state", (), shape, "float64", (self.loop, number), self._called(number)))
            self.carried.append((before, recurrence.args[number], -1))
        for number, following in enumerate(recurrence.args[half:]):
            before, start, _ = self.carried[number]
            self.carried[number] = before, start, self._sized(self.within(following), self.nodes[before])

    def _called(self, number: int) -> str:
        """Returns the reference's name for a carried value."""
        return next(
            (one.name for one in self.graph.nodes if one.op == "state" and one.data[1] == number and one.name), ""
        )

    def steps(self) -> LoopSteps:
        """Returns the loop."""
        of_steps = [self._is_of_steps(one) for one in self.graph.outputs]
        outputs = [
            (self.within if steps else self.after)(one) for one, steps in zip(self.graph.outputs, of_steps, strict=True)
        ]
        count = len(outputs)
        several = [node for one in self.carried for node in one]
        found = _without_copies(sorted_graph(self.nodes, [*outputs, *several]))
        places = iter(found.outputs[count:])
        carried = tuple(
            LoopValue(
                found.nodes[before].shape, self._axis_of(self.nodes[old]) or 0, start, following, self.nodes[old].name
            )
            for (old, _, _), before, start, following in zip(self.carried, places, places, places, strict=True)
        )
        return LoopSteps(
            replace(found, outputs=found.outputs[:count]), carried, tuple(of_steps), str(self.count), self.backwards
        )

    def _axis_of(self, state: Node) -> int | None:
        return self._own_axes.get(int(state.data[1] or 0), int(self.axis or 0))

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _sized(self, index: int, like: Node) -> int:
        """Returns a value with the shape of another, which it may lack axes of."""
        if self.nodes[index].shape == like.shape:
            return index
        zero = self._add(Node("constant", (), like.shape, "float64", (0,)))
        return self._add(Node("map", (index, zero), like.shape, "float64", ("add",)))

    # -------------------------------------------------------------------------------------------- axes

    def steps_axis(self, index: int) -> int | None:
        """Returns the axis of a value along which the loop's steps lie; None if it has none."""
        if index not in self._axes:
            self._axes[index] = None
            self._axes[index] = self._steps_axis(self.graph.nodes[index])
        return self._axes[index]

    def _steps_axis(self, node: Node) -> int | None:
        if node.op == "state" or (node.op == "recur" and node.data[2] != LAST):
            return int(self.axis or 0)
        if node.op == "scan" and self._is_over_steps(node):
            return int(node.data[1] or 0)
        for one in node.args if node.op not in ("recur", "scan") else ():
            axis, source = self.steps_axis(one), self.graph.nodes[one]
            if axis is None:
                continue
            match node.op:
                case "map" | "cast":
                    return axis + len(node.shape) - len(source.shape)
                case "view":
                    return node.data.index(axis) if axis in node.data else None
                case "reduce":
                    gone = int(node.data[1] or 0)
                    return None if gone == axis else axis - (gone < axis)
                case "window":
                    moved = AxisMap.of(node.data[axis])
                    return moved.terms[0][0] if len(moved.terms) == 1 and moved.offset == "0" else None
        return None

    def _is_over_steps(self, scan: Node) -> bool:
        """Returns True if a scan has a value for each step of the loop, in the same order."""
        kind, axis, backwards = scan.data
        return kind in _COMBINED and scan.shape[int(axis or 0)] == self.count and bool(backwards) == self.backwards

    def _reduces_steps(self, node: Node) -> bool:
        return node.op == "reduce" and self.steps_axis(node.args[0]) == int(node.data[1] or 0)

    def _is_of_steps(self, output: int) -> bool:
        """Returns True if a result has elements for each step.

        Raises:
            Refused: it does not depend on the loop.
        """
        seen, stack, found = set[int](), [output], False
        while stack:
            index = stack.pop()
            node = self.graph.nodes[index]
            if index in seen:
                continue
            seen.add(index)
            if (node.op == "recur" and node.data[2] != LAST) or (node.op == "scan" and self._is_over_steps(node)):
                return True
            last = node.op == "recur" or self._reduces_steps(node)
            found = found or last
            stack += () if last else node.args
        if not found:
            raise Refused("it has a result that does not depend on the recurrence")
        return False

    # -------------------------------------------------------------------------------------------- values

    def within(self, index: int) -> int:
        """Returns a value of a step in terms of the values before it."""
        if index not in self._within:
            self._within[index] = self._in_step(index)
        return self._within[index]

    def _in_step(self, index: int) -> int:
        node = self.graph.nodes[index]
        if node.op == "state":
            return self.carried[int(node.data[1] or 0)][0]
        if node.op == "recur":
            if node.data[2] not in (ALL, BEFORE):
                raise Refused("it needs the last state at each step")
            before, _, following = self.carried[int(node.data[1] or 0)]
            return before if node.data[2] == BEFORE else following
        if node.op == "scan" and self._is_over_steps(node):
            return self.carried[self._accumulated(str(node.data[0]), node.args[0], int(node.data[1] or 0))][2]
        if node.op == "map" and node.data[0] == "subtract" and self._is_before(*node.args):
            scan = self.graph.nodes[node.args[0]]
            return self.carried[self._accumulated("sum", scan.args[0], int(scan.data[1] or 0))][0]
        args = tuple(self.within(one) for one in node.args)
        return index if args == node.args else self._add(replace(node, args=args))

    def _is_before(self, sum_: int, value: int) -> bool:
        """Returns True for a sum of all values up to a step less the step's own."""
        node = self.graph.nodes[sum_]
        return node.op == "scan" and node.data[0] == "sum" and node.args[0] == value and self._is_over_steps(node)

    def _accumulated(self, kind: str, operand: int, axis: int) -> int:
        """Returns the number of the carried value that accumulates `operand` over all steps; adds it at the first call."""
        known = (kind, operand)
        if known not in self._sums:
            if kind not in _COMBINED or not self.graph.nodes[operand].dtype.startswith("float"):
                raise Refused(f"it reduces the values of all steps by {kind}")
            value, number = self.within(operand), len(self.carried)
            ufunc, neutral = _COMBINED[kind]
            shape = self.graph.nodes[operand].shape
            state = Node("state", (), shape, "float64", (self.loop, number), self.graph.nodes[operand].name and "total")
            before = self._add(state)
            start = self._add(Node("constant", (), (), "float64", (neutral,)))
            following = self._add(Node("map", (before, value), shape, "float64", (ufunc,)))
            self._sums[known] = number
            self._own_axes[number] = axis
            self.carried.append((before, start, following))
        return self._sums[known]

    def after(self, index: int) -> int:
        """Returns a value after the loop in terms of the last values."""
        if index not in self._after:
            self._after[index] = self._after_loop(index)
        return self._after[index]

    def _after_loop(self, index: int) -> int:
        node = self.graph.nodes[index]
        if node.op == "recur":
            return self._add(replace(node, args=()))
        if self._reduces_steps(node):
            axis, source = int(node.data[1] or 0), self.graph.nodes[node.args[0]]
            number = self._accumulated(str(node.data[0]), node.args[0], axis)
            shape = (*source.shape[:axis], "1", *source.shape[axis + 1 :])
            data = (self.loop, number, LAST, axis, self.backwards, self.count)
            last = self._add(Node("recur", (), shape, "float64", data))
            kept = tuple(one for one in range(len(shape)) if one != axis)
            return self._add(Node("view", (last,), node.shape, node.dtype, kept))
        args = tuple(self.after(one) for one in node.args)
        return index if args == node.args else self._add(replace(node, args=args))


def _without_copies(graph: Graph) -> Graph:
    """Returns a graph in which equal operations on equal operands are one; names of either are kept."""
    nodes: list[Node] = []
    known: dict[Node, int] = {}
    moved: list[int] = []
    for one in graph.nodes:
        node = replace(one, args=tuple(moved[arg] for arg in one.args))
        place = known.setdefault(node, len(nodes))
        if place == len(nodes):
            nodes.append(node)
        elif not nodes[place].name:
            nodes[place] = replace(nodes[place], name=node.name)
        moved.append(place)
    return Graph(tuple(nodes), tuple(moved[one] for one in graph.outputs))
