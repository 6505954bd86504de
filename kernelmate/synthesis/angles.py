"""Angles of a discrete Fourier transform, `cos(2 * pi * k * n / N)`, which lose digits in `float` if they exceed a turn."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from kernelmate.synthesis.graph import Datum, Graph, Node, sorted_graph

_MOST = 1 << 16
"""Largest denominator of a turn's fraction that is a constant."""


def within_a_turn(graph: Graph) -> Graph:
    """Returns the graph with cosines and sines of whole multiples of a fraction of a turn computed by `cospi` and `sinpi` of the angle modulo a full turn."""
    found = _Angles(graph)
    for index, node in enumerate(graph.nodes):
        if node.op == "map" and node.data[0] in ("cos", "sin"):
            angle = found.reduced(node.args[0])
            if angle is not None:
                found.nodes[index] = replace(node, args=(angle,), data=(f"{node.data[0]}pi",))
    return graph if len(found.nodes) == len(graph.nodes) else sorted_graph(found.nodes, graph.outputs)


class _Angles:
    """Builder of the angles, whose nodes follow the graph's."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = list(graph.nodes)
        self._known: dict[int, int | None] = {}

    def reduced(self, index: int) -> int | None:
        """Returns the number of a node with an equal angle within one turn, in units of pi.

        The result is None if node `index` is not an integer multiple of a fraction of a turn.
        """
        if index not in self._known:
            self._known[index] = self._reduced(index)
        return self._known[index]

    def _reduced(self, index: int) -> int | None:
        factor, above, below = self._factors(index)
        share = Fraction(abs(factor) / math.tau).limit_denominator(_MOST)
        whole = all(self.nodes[one].dtype.startswith(("int", "uint")) for one in (*above, *below))
        if not above or not whole or not share or abs(float(share) * math.tau - abs(factor)) > 1e-12 * abs(factor):
            return None
        if share.numerator != 1 or any(self.nodes[one].op != "size" for one in below):
            return None
        if share.denominator > 1:
            below = [*below, self._add("constant", (), (), "int64", (share.denominator,))]
        if not below:
            return None
        count, turns = self._product(below), self._product(above)
        rest = self._map("remainder", turns, count, "int64")
        half_turns = self._add("constant", (), (), "float64", (math.copysign(2.0, factor),))
        return self._map("divide", self._map("multiply", half_turns, rest, "float64"), count, "float64")

    def _factors(self, index: int) -> tuple[float, list[int], list[int]]:
        """Returns the constant factor of a product, and the nodes of its other factors and of its divisors."""
        node = self.nodes[index]
        name = node.data[0] if node.op == "map" else ""
        if node.op == "constant":
            return float(node.data[0] or 0), [], []
        if node.op == "cast" and not node.dtype.startswith("int"):
            return self._factors(node.args[0])
        if name == "negative":
            factor, above, below = self._factors(node.args[0])
            return -factor, above, below
        if name in ("multiply", "divide"):
            first, second = (self._factors(one) for one in node.args)
            if name == "multiply":
                return first[0] * second[0], first[1] + second[1], first[2] + second[2]
            if second[0]:
                return first[0] / second[0], first[1] + second[2], first[2] + second[1]
        return 1.0, [index], []

    def _product(self, factors: list[int]) -> int:
        total, *rest = factors
        for one in rest:
            total = self._map("multiply", total, one, "int64")
        return total

    def _map(self, name: str, first: int, second: int, dtype: str) -> int:
        long, short = sorted((self.nodes[first].shape, self.nodes[second].shape), key=len, reverse=True)
        padded = ("1",) * (len(long) - len(short)) + short
        shape = tuple(b if a == "1" else a for a, b in zip(long, padded, strict=True))
        return self._add("map", (first, second), shape, dtype, (name,))

    def _add(self, op: str, args: tuple[int, ...], shape: tuple[str, ...], dtype: str, data: tuple[Datum, ...]) -> int:
        self.nodes.append(Node(op, args, shape, dtype, data))
        return len(self.nodes) - 1
