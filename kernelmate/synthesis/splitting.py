"""Axes that a reshape merges stay apart in what follows it, as in `((x - mean) / std).reshape(n, c) * gamma`.

The operations after the reshape are computed on the axes before it, and their other operands, such as `gamma`, are read
along these axes. The reshape then comes last, where it does not change memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from kernelmate.records import Contract
from kernelmate.source import evaluate
from kernelmate.synthesis.graph import Datum, Graph, Node, sorted_graph
from kernelmate.synthesis.plan import without_reshapes

Sides = tuple[str, ...]
Block = tuple[int, Sides]
"""Neighbouring axes after a reshape, by number, and the sides of the axes before it that have the same elements."""


def with_split_axes(graph: Graph, contract: Contract) -> Graph | None:
    """Returns the graph with reshapes that merge axes moved after element-wise operations; None if there are none."""
    found = _Splitting(graph, contract)
    return without_reshapes(sorted_graph(found.nodes, graph.outputs)) if found.moved else None


class _Splitting:
    """Builder of the new graph.

    Attributes:
        nodes: old nodes at their indices, of which some became reshapes, then new ones.
        moved: True if a reshape was moved after an operation.
    """

    def __init__(self, graph: Graph, contract: Contract) -> None:
        self.nodes, self.moved = list(graph.nodes), False
        self._sizes = contract.sizes
        self._split: dict[int, tuple[int, tuple[Block, ...]]] = {}
        self._spreads: dict[tuple[int, tuple[Sides, ...]], int] = {}
        for index, node in enumerate(graph.nodes):
            if node.op == "reshape" and graph.nodes[node.args[0]].op != "input":
                blocks = self._blocks(graph.nodes[node.args[0]].shape, node.shape)
                if blocks is not None:
                    self._split[index] = node.args[0], blocks
            elif node.op in ("map", "cast"):
                self._move(index, node)

    def _blocks(self, sides: Sides, after: Sides) -> tuple[Block, ...] | None:
        """Returns the smallest blocks of axes with equal numbers of elements, at all listed sizes; None if there are none.

        The reshape itself demands that the numbers are equal at other sizes.
        """
        found: list[Block] = []
        own = later = 0
        while own < len(sides) and later < len(after):
            ends = (
                (end, count) for end in range(own + 1, len(sides) + 1) for count in range(1, len(after) - later + 1)
            )
            block = next((one for one in ends if self._equal(sides[own : one[0]], after[later : later + one[1]])), None)
            if block is None:
                return None
            found.append((block[1], sides[own : block[0]]))
            own, later = block[0], later + block[1]
        return tuple(found) if own == len(sides) and later == len(after) else None

    def _equal(self, sides: Sides, others: Sides) -> bool:
        def counts(several: Sides) -> list[int]:
            return [math.prod(int(evaluate(one, size)) for one in several) for size in self._sizes]

        return counts(sides) == counts(others)

    def _move(self, index: int, node: Node) -> None:
        """Computes an operation on the axes before the reshape of an operand, if there is one in the operation's shape."""
        merged = next((one for one in node.args if one in self._split and self.nodes[one].shape == node.shape), None)
        if merged is None:
            return
        source, blocks = self._split[merged]
        args = [self._operand(one, blocks) for one in node.args]
        if None in args:
            return
        several = tuple(one for one in args if one is not None)
        made = self._add(replace(node, args=several, shape=self.nodes[source].shape))
        self.nodes[index] = Node("reshape", (made,), node.shape, node.dtype)
        self._split[index] = made, blocks
        self.moved = True

    def _operand(self, index: int, blocks: Sequence[Block]) -> int | None:
        """Returns an operand along the axes before the reshape; None if they cut through its axes."""
        if index in self._split and self._split[index][1] == blocks:
            return self._split[index][0]
        shape = self.nodes[index].shape
        if not shape:
            return index
        first = sum(count for count, _ in blocks) - len(shape)
        axes: list[int | None] = []
        parts: list[Sides] = []
        place = -first
        for count, sides in blocks:
            own = [axis for axis in range(place, place + count) if axis >= 0]
            place += count
            if all(shape[axis] == "1" for axis in own):
                axes.append(None)
                parts.append(("1",) * len(sides))
            elif count == 1:
                axes.append(own[0])
                parts.append(sides)
            else:
                return None
        if axes != [*range(len(shape))]:
            kept = tuple("1" if axis is None else shape[axis] for axis in axes)
            index = self._add(Node("view", (index,), kept, self.nodes[index].dtype, tuple(axes)))
        return self._spread(index, parts)

    def _aligned(self, index: int, parts: Sequence[Sides]) -> list[Sides]:
        """Returns the parts of an operand's axes under NumPy's broadcasting."""
        shape = self.nodes[index].shape
        behind = parts[len(parts) - len(shape) :]
        return [one if side != "1" else ("1",) * len(one) for side, one in zip(shape, behind, strict=True)]

    def _spread(self, index: int, parts: Sequence[Sides]) -> int:
        """Returns a node with the elements of another one, each of whose axes is split into parts."""
        key = index, tuple(parts)
        if key not in self._spreads:
            self._spreads[key] = self._spread_anew(index, parts)
        return self._spreads[key]

    def _spread_anew(self, index: int, parts: Sequence[Sides]) -> int:
        node = self.nodes[index]
        shape = tuple(side for one in parts for side in one)
        if shape == node.shape:
            return index
        if node.op in ("input", "constant"):
            return self._add(replace(node, shape=shape))
        if node.op in ("map", "cast"):
            args = tuple(self._spread(one, self._aligned(one, parts)) for one in node.args)
            return self._add(replace(node, args=args, shape=shape))
        if node.op == "view":
            return self._viewed(node, parts, shape)
        return self._add(Node("reshape", (index,), shape, node.dtype))

    def _viewed(self, node: Node, parts: Sequence[Sides], shape: Sides) -> int:
        """Returns a view of the source, whose axes are split as the view's."""
        source = self.nodes[node.args[0]].shape
        own: list[Sides] = [(side,) for side in source]
        for axis, one in enumerate(node.data):
            if one is not None:
                own[int(one)] = parts[axis]
        starts = [sum(map(len, own[:axis])) for axis in range(len(own))]
        data: list[Datum] = []
        for axis, one in enumerate(node.data):
            data += (
                [None] * len(parts[axis])
                if one is None
                else [starts[int(one)] + step for step in range(len(parts[axis]))]
            )
        return self._add(replace(node, args=(self._spread(node.args[0], own),), shape=shape, data=tuple(data)))

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1
