"""Plans of results from several sums along one axis: matrix products that share an operand, and row or column sums.

Examples are gated products (`silu(x @ w1) * (x @ w2)`), products of complex matrices, and products divided by row and
column norms. Slices of a product become products of slices, factors that all terms of a sum have in common are applied
after it, and an array used along different axes gets a name for each use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap, existing, never_negative
from kernelmate.synthesis.parts import with_parts
from kernelmate.synthesis.plan import Key, Plan, Refused, long_sides, walk, without_reshapes


@dataclass(frozen=True, slots=True)
class JointSums(Plan):
    """A plan whose sums all run along the last axis of its domain, which no result has."""

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns the keys of an operation's operands; for a sum, along the last axis."""
        node, index = self.node(key), key[1]
        if node.op != "reduce":
            return Plan.operands(self, key)
        axis, depth = int(node.data[1] or 0), len(self.domain) - 1
        if depth in index:
            raise Refused("it sums along several axes")
        return ((node.args[0], (*index[:axis], depth, *index[axis:])),)


def joint_sums(graph: Graph, taken: Sequence[str]) -> tuple[JointSums, dict[str, str]]:
    """Returns the plan of a graph with joint sums, and the array that each additional name stands for.

    Args:
        graph: the graph as traced.
        taken: names that additional names must differ from.

    Raises:
        Refused: the results are not of this form.
    """
    if not any(node.op == "reduce" for node in graph.nodes):
        raise Refused("it sums nothing")
    others: dict[str, str] = {}
    if any(node.op == "window" for node in graph.nodes):
        parted = with_parts(_SlicedSums(_with_plain_sides(graph)).sunk(), taken, strided=True)
        if parted is None:
            raise Refused("it takes parts of arrays that are not equally long")
        graph, others = parted
    graph = _with_sums_of_terms(without_common_factors(without_reshapes(graph)))
    plan = _plan(graph)
    reduced = set[Key]()
    for key in walk(plan):
        below = any(one in reduced for one in plan.operands(key))
        if plan.node(key).op == "reduce" and below:
            raise Refused("it sums what depends on other sums")
        if below or plan.node(key).op == "reduce":
            reduced.add(key)
    return _with_names(plan, others, taken)


def without_common_factors(graph: Graph) -> Graph:
    """Returns the graph in which factors that all terms of a sum have in common are applied after the sum."""
    return _Factors(graph).outside()


def _with_plain_sides(graph: Graph) -> Graph:
    """Returns the graph with plain axis lengths, such as `n` for the `max(n, 0)` of a slice with a step."""

    def plain(side: str) -> str:
        length = existing(side)
        return length.text() if side.startswith("max(") and never_negative(length) else side

    return Graph(tuple(replace(node, shape=tuple(map(plain, node.shape))) for node in graph.nodes), graph.outputs)


def _plan(graph: Graph) -> JointSums:
    nodes = graph.nodes
    sums = [node for node in nodes if node.op == "reduce"]
    depths = {nodes[node.args[0]].shape[int(node.data[1] or 0)] for node in sums}
    shapes = {long_sides(nodes[one]) for one in graph.outputs}
    if any(node.data[0] != "sum" for node in sums) or len(depths) != 1 or depths == {"1"}:
        raise Refused("it reduces along axes of different lengths, or other than to sums")
    if len(shapes) != 1:
        raise Refused("its outputs have different shapes")
    domain = *shapes.pop(), depths.pop()
    outputs = []
    for one in graph.outputs:
        axes = iter(range(len(domain)))
        outputs.append((one, tuple(None if side == "1" else next(axes) for side in nodes[one].shape)))
    return JointSums(graph, domain, 0, tuple(outputs), "free")


def _with_names(plan: JointSums, others: dict[str, str], taken: Sequence[str]) -> tuple[JointSums, dict[str, str]]:
    """Returns the plan with one node per distinct key, and with a name for each axis order of an array."""
    nodes: list[Node] = []
    places: dict[Key, int] = {}
    known: dict[tuple[Node, object], int] = {}
    names: dict[tuple[str, object], str] = {}
    others = dict(others)
    for key in walk(plan):
        node = plan.node(key)
        if node.op == "input":
            name, order = str(node.data[0]), tuple(one for one in key[1] if one is not None)
            if (name, order) not in names:
                met = any(one == name for one, _ in names)
                names[name, order] = _alias(name, {*taken, *others}) if met else name
                if met:
                    others[names[name, order]] = others.get(name, name)
            node = replace(node, data=(names[name, order],))
        node = replace(node, args=tuple(places[one] for one in plan.operands(key)))
        places[key] = known.setdefault((node, key[1]), len(nodes))
        if places[key] == len(nodes):
            nodes.append(node)
    outputs = tuple((places[key], key[1]) for key in plan.outputs)
    return replace(plan, graph=Graph(tuple(nodes), tuple(one for one, _ in outputs)), outputs=outputs), others


def _alias(name: str, taken: set[str]) -> str:
    alias, number = f"{name}_columns", 2
    while alias in taken:
        alias, number = f"{name}_columns_{number}", number + 1
    return alias


@dataclass(frozen=True, slots=True)
class _Slice:
    """Positions along an axis: `length` positions from `offset`, `step` apart."""

    offset: str
    step: int
    length: str


class _SlicedSums:
    """Moves slices of computed arrays to the arrays that they are computed from."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.nodes = graph, list(graph.nodes)

    def sunk(self) -> Graph:
        """Returns the graph in which only arguments are sliced.

        Raises:
            Refused: elements are selected by other means than slices, or slices are taken of operations other than sums
                and element-wise ones.
        """
        for index, node in enumerate(self.graph.nodes):
            if node.op == "window" and self.nodes[node.args[0]].op != "input":
                made = self.nodes[self._moved(node.args[0], self._slices(index))]
                self.nodes[index] = replace(made, name=node.name or made.name)
        return sorted_graph(self.nodes, self.graph.outputs)

    def _slices(self, index: int) -> list[_Slice | None]:
        """Returns the slice along each axis of a window's source; None for a whole axis."""
        node = self.nodes[index]
        source = self.nodes[node.args[0]]
        if len(node.args) != 1 or len(node.shape) != len(source.shape):
            raise Refused("it takes other elements of a result than slices")
        found: list[_Slice | None] = []
        for axis, (entry, side) in enumerate(zip(node.data, node.shape, strict=True)):
            one = AxisMap.of(entry)
            step = dict(one.terms).get(axis, 0)
            if (one.terms != ((axis, step),) and one.terms != ()) or one.beyond != ORDINARY or one.every != 1:
                raise Refused("it takes other elements of a result than slices")
            whole = step == 1 and one.offset == "0" and side == source.shape[axis]
            found.append(None if whole else _Slice(one.offset, step or 1, side))
        return found

    def _moved(self, index: int, slices: Sequence[_Slice | None]) -> int:
        """Returns the node of a sliced value."""
        node = self.nodes[index]
        if not any(slices):
            return index
        shape = tuple(side if one is None else one.length for one, side in zip(slices, node.shape, strict=True))
        if node.op == "input":
            ranges = [one or _Slice("0", 1, "") for one in slices]
            maps = [AxisMap(one.offset, ((axis, one.step),)).text() for axis, one in enumerate(ranges)]
            return self._put(Node("window", (index,), shape, node.dtype, tuple(maps)))
        if node.op in ("map", "cast"):
            args = [self._moved(one, _aligned(slices, self.nodes[one])) for one in node.args]
        elif node.op == "reduce":
            axis = int(node.data[1] or 0)
            args = [self._moved(node.args[0], [*slices[:axis], None, *slices[axis:]])]
        elif node.op == "view":
            if any(one and axis is None and one.length != "1" for one, axis in zip(slices, node.data, strict=True)):
                raise Refused("it takes other elements of a result than slices")
            by_axis = {axis: one for axis, one in zip(node.data, slices, strict=True) if axis is not None}
            args = [
                self._moved(node.args[0], [by_axis.get(axis) for axis in range(len(self.nodes[node.args[0]].shape))])
            ]
        elif node.op == "window":
            raise Refused("it takes parts of parts of arrays")
        else:
            raise Refused("it takes slices of other values than sums and element-wise ones")
        return self._put(replace(node, args=tuple(args), shape=shape))

    def _put(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


def _aligned(slices: Sequence[_Slice | None], arg: Node) -> list[_Slice | None]:
    """Returns the slices of an operand, by NumPy's broadcasting rules."""
    behind = slices[len(slices) - len(arg.shape) :]
    return [None if side == "1" else one for one, side in zip(behind, arg.shape, strict=True)]


class _Factors:
    """Applies factors and divisors that all terms of a sum have in common after the sum."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.nodes = graph, list(graph.nodes)

    def outside(self) -> Graph:
        """Returns the graph whose sums have only factors that vary along the summation axis."""
        for index, node in enumerate(self.graph.nodes):
            if node.op != "reduce" or node.data[0] != "sum" or not node.dtype.startswith("float"):
                continue
            axis = int(node.data[1] or 0)
            inner, factors = self._split(node.args[0], axis)
            if not factors:
                continue
            source = self.nodes[inner]
            shape = source.shape[:axis] + source.shape[axis + 1 :]
            made = replace(node, args=(inner,), shape=shape)
            for name, factor in factors:
                self.nodes.append(made)
                summed = len(self.nodes) - 1
                kept = [one for one in range(len(node.shape) + 1) if one != axis]
                other = self._viewed(self._full(factor, len(node.shape) + 1), kept)
                sides = _broadcast(made.shape, self.nodes[other].shape)
                made = Node("map", (summed, other), sides, node.dtype, (name,), node.name)
            self.nodes[index] = made
        return sorted_graph(self.nodes, self.graph.outputs)

    def _split(self, index: int, axis: int) -> tuple[int, list[tuple[str, int]]]:
        """Returns the part of a value that varies along an axis, and the other factors and divisors in order of use."""
        node = self.nodes[index]
        if not node.dtype.startswith("float"):
            return index, []
        if node.op == "cast" and self.nodes[node.args[0]].dtype.startswith("float"):
            return self._split(node.args[0], axis)
        if node.op == "view" and node.data[axis] is not None:
            inner, factors = self._split(node.args[0], int(node.data[axis] or 0))
            if not factors:
                return index, []
            rank = len(self.nodes[node.args[0]].shape)
            seen = [(name, self._viewed(self._full(one, rank), node.data)) for name, one in factors]
            return self._viewed(inner, node.data), seen
        if node.op != "map" or node.data[0] not in ("multiply", "divide"):
            return index, []
        differs = [self._differs(one, axis - len(node.shape)) for one in node.args]
        if not any(differs) or (node.data[0] == "divide" and differs != [True, False]):
            return index, []
        rank, found, differing = len(node.shape), list[tuple[str, int]](), list[int]()
        for place, (one, own) in enumerate(zip(node.args, differs, strict=True)):
            if not own:
                found.append(("multiply" if place == 0 else str(node.data[0]), one))
                continue
            behind, factors = self._split(one, axis - rank + len(self.nodes[one].shape))
            differing.append(behind)
            found += factors
        if not found:
            return index, []
        if len(differing) == 1:
            return self._full(differing[0], rank), found
        sides = _broadcast(*(self.nodes[one].shape for one in differing))
        self.nodes.append(Node("map", tuple(differing), sides, node.dtype, node.data))
        return self._full(len(self.nodes) - 1, rank), found

    def _differs(self, index: int, from_end: int) -> bool:
        """Returns True if a value has more than one element along an axis; `from_end` is -1 for the last axis."""
        shape = self.nodes[index].shape
        return -from_end <= len(shape) and shape[from_end] != "1"

    def _full(self, index: int, rank: int) -> int:
        """Returns a value with leading axes of length 1 added up to a rank."""
        own = len(self.nodes[index].shape)
        return index if own == rank else self._viewed(index, [*[None] * (rank - own), *range(own)])

    def _viewed(self, index: int, axes: Sequence[object]) -> int:
        source = self.nodes[index]
        data = tuple(one if isinstance(one, int) else None for one in axes)
        sides = tuple("1" if one is None else source.shape[one] for one in data)
        self.nodes.append(Node("view", (index,), sides, source.dtype, data))
        return len(self.nodes) - 1


def _broadcast(*shapes: Sequence[str]) -> tuple[str, ...]:
    """Returns the broadcast shape of arrays."""
    rank = max(map(len, shapes))
    full = [("1",) * (rank - len(one)) + tuple(one) for one in shapes]
    return tuple(next((side for side in sides if side != "1"), "1") for sides in zip(*full, strict=True))


def _with_sums_of_terms(graph: Graph) -> Graph:
    """Returns the graph with sums and differences of two sums, used for nothing else, merged into one sum."""
    nodes = list(graph.nodes)
    uses = Counter([*(arg for node in nodes for arg in node.args), *graph.outputs])
    for index, node in enumerate(graph.nodes):
        if node.op != "map" or node.data[0] not in ("add", "subtract") or node.args[0] == node.args[1]:
            continue
        first, second = (nodes[one] for one in node.args)
        if any(one.op != "reduce" or one.data[0] != "sum" for one in (first, second)):
            continue
        if any(uses[one] > 1 for one in node.args):
            continue
        inner = [nodes[one.args[0]] for one in (first, second)]
        if first.data != second.data or inner[0].shape != inner[1].shape or first.dtype != second.dtype:
            continue
        args = tuple(one.args[0] for one in (first, second))
        nodes.append(Node("map", args, inner[0].shape, node.dtype, node.data))
        nodes[index] = replace(first, args=(len(nodes) - 1,), name=node.name)
    return sorted_graph(nodes, graph.outputs)
