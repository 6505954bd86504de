"""Grouped axes: heads in attention, and values such as scales of quantised weights; also packed elements.

An axis along which `np.repeat` repeats elements is split into groups and members. A repeated array then has only the
axis of the groups, and takes no additional memory.

`(w.reshape(n, groups, -1) * scales[..., None]).reshape(n, k)` becomes `w * scales[:, k // size]`. The elements of a
stack along the last axis, flattened, become a selection by `k % 2` between the members' elements `k // 2`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.index_maps import ABOVE, ORDINARY, AxisMap, linear
from kernelmate.synthesis.plan import Refused

Place = tuple[int, int]
"""A node, and one of its axes."""


def with_groups(graph: Graph) -> Graph:
    """Returns the graph with each axis that repeats elements split into an axis of groups and one of members.

    The graph is unchanged if no axis repeats elements.
    """
    repeats = {index: found for index, node in enumerate(graph.nodes) if (found := _repeated(graph, node)) is not None}
    if not repeats:
        return graph
    try:
        return _Groups(graph, repeats).graph()
    except Refused:
        return graph


def _repeated(graph: Graph, node: Node) -> tuple[int, str, str] | None:
    """Returns the axis along which a node repeats elements, the number of groups, and the members of each; or None."""
    if node.op not in ("pick", "take"):
        return None
    axis = int(node.data[0] or 0) if node.data else 0
    source, numbers = (graph.nodes[one] for one in node.args)
    while numbers.op == "cast":
        numbers = graph.nodes[numbers.args[0]]
    if numbers.op != "map" or numbers.data[0] != "floor_divide" or len(numbers.shape) != 1:
        return None
    position, by = (graph.nodes[one] for one in numbers.args)
    if position.op != "iota" or by.op not in ("constant", "size") or by.shape:
        return None
    return axis, source.shape[axis], str(by.data[0])


class _Groups:
    """Builder of the new graph.

    Args:
        graph: the old one.
        repeats: results of `_repeated`, by node.
    """

    def __init__(self, graph: Graph, repeats: dict[int, tuple[int, str, str]]) -> None:
        self.nodes, self.outputs, self.repeats = graph.nodes, graph.outputs, repeats
        self._of: dict[Place, Place] = {}
        for index, node in enumerate(graph.nodes):
            for axis, (other, its) in self._links(index, node):
                self._join((index, axis), (other, its))
        self.split: dict[Place, tuple[str, str]] = {}
        for index, (axis, groups, members) in repeats.items():
            root = self._root((index, axis))
            if self.split.setdefault(root, (groups, members)) != (groups, members):
                raise Refused("it repeats elements of arrays in several ways along one axis")

    def _root(self, place: Place) -> Place:
        while place in self._of:
            place = self._of[place]
        return place

    def _join(self, first: Place, second: Place) -> None:
        roots = self._root(first), self._root(second)
        if roots[0] != roots[1]:
            self._of[roots[0]] = roots[1]

    def _links(self, index: int, node: Node) -> list[tuple[int, Place]]:
        """Returns pairs of a node's axis and the corresponding axis of an operand."""
        sources = [(one, self.nodes[one].shape) for one in node.args]
        found: list[tuple[int, Place]] = []
        match node.op:
            case "map" | "cast":
                for one, shape in sources:
                    first = len(node.shape) - len(shape)
                    found += [(first + axis, (one, axis)) for axis, side in enumerate(shape) if side != "1"]
            case "view":
                found = [(axis, (node.args[0], int(one))) for axis, one in enumerate(node.data) if one is not None]
            case "reduce":
                gone = int(node.data[1] or 0)
                found = [(axis, (node.args[0], axis + (axis >= gone))) for axis in range(len(node.shape))]
            case "pick" | "take" if index in self.repeats:
                own = self.repeats[index][0]
                found = [(axis, (node.args[0], axis)) for axis in range(len(node.shape)) if axis != own]
        return found

    def _parts(self, index: int) -> list[tuple[str, str] | None]:
        """Returns, for each axis of a node, the numbers of groups and members of its split; None for a kept axis."""
        sides = self.nodes[index].shape
        return [self.split.get(self._root((index, axis))) if side != "1" else None for axis, side in enumerate(sides)]

    def _axes(self, index: int) -> list[list[int]]:
        """Returns, for each old axis, the new axes that replace it."""
        found: list[list[int]] = []
        for parts in self._parts(index):
            first = found[-1][-1] + 1 if found else 0
            found.append([first] if parts is None else [first, first + 1])
        return found

    def _whole(self, index: int) -> tuple[str, ...]:
        """Returns the new shape of a node, with groups and members."""
        found: list[str] = []
        for side, parts in zip(self.nodes[index].shape, self._parts(index), strict=True):
            found += [side] if parts is None else parts
        return tuple(found)

    def graph(self) -> Graph:
        """Returns the new graph.

        Raises:
            Refused: an operation cannot be split along such an axis.
        """
        self.made = list(self.nodes)
        for index, node in enumerate(self.nodes):
            self.made[index] = self._taken_apart(index, node)
        outputs = list(self.outputs)
        for place, one in enumerate(self.outputs):
            if self.made[one].shape != self.nodes[one].shape:
                self._refuse_repeated(one)
                outputs[place] = self._add(Node("reshape", (one,), self.nodes[one].shape, self.nodes[one].dtype))
        return sorted_graph(self.made, outputs)

    def _add(self, node: Node) -> int:
        self.made.append(node)
        return len(self.made) - 1

    def _refuse_repeated(self, index: int) -> None:
        if self.made[index].shape != self._whole(index):
            raise Refused("it stores elements that it repeats")

    def _taken_apart(self, index: int, node: Node) -> Node:
        """Returns an operation on the split axes."""
        split = any(parts is not None for one in (index, *node.args) for parts in self._parts(one))
        if index in self.repeats:
            return self._view(node, [self._axes(node.args[0])[axis] + [None] * (axis == self.repeats[index][0]) for axis in range(len(node.shape))])  # fmt: skip
        if not split:
            return node
        match node.op:
            case "input" | "constant":
                return replace(node, shape=self._whole(index))
            case "iota":
                return self._positions(index, node)
            case "map" | "cast":
                return self._mapped(index, node)
            case "view":
                axes = self._axes(node.args[0])
                return self._view(node, [[None] if one is None else axes[int(one)] for one in node.data])
            case "reduce" if self._parts(node.args[0])[int(node.data[1] or 0)] is None:
                (gone,) = self._axes(node.args[0])[int(node.data[1] or 0)]
                sides = self.made[node.args[0]].shape
                return replace(node, shape=sides[:gone] + sides[gone + 1 :], data=(node.data[0], gone, *node.data[2:]))
            case "reshape":
                self._refuse_repeated(node.args[0])
                return replace(node, shape=self._whole(index))
        raise Refused(f"it repeats elements beside another operation ({node.op})")

    def _view(self, node: Node, axes: Sequence[Sequence[int | None]]) -> Node:
        data = tuple(one for several in axes for one in several)
        sides = self.made[node.args[0]].shape
        shape = tuple("1" if one is None else sides[one] for one in data)
        return Node("view", node.args[:1], shape, node.dtype, data, node.name)

    def _positions(self, index: int, node: Node) -> Node:
        """Returns positions along a split axis, computed from those of groups and of members."""
        groups, members = self._whole(index)
        first = self._add(Node("iota", (), (groups,), node.dtype))
        across = self._add(Node("view", (first,), (groups, "1"), node.dtype, (0, None)))
        count: tuple[int | str, ...] = (int(members),) if members.isdigit() else (members,)
        each = self._add(Node("constant" if members.isdigit() else "size", (), (), node.dtype, count))
        start = self._add(Node("map", (across, each), (groups, "1"), node.dtype, ("multiply",)))
        within = self._add(Node("iota", (), (members,), node.dtype))
        return Node("map", (start, within), (groups, members), node.dtype, ("add",), node.name)

    def _mapped(self, index: int, node: Node) -> Node:
        """Returns an element-wise operation; operands that have only the groups get a members' axis of length 1."""
        parts, args = self._parts(index), []
        for one in node.args:
            first = len(node.shape) - len(self.nodes[one].shape)
            both = zip(self._axes(one), self._parts(one), parts[first:], strict=True)
            axes = [[*own, None] if here is None and wanted is not None else own for own, here, wanted in both]
            view = self._view(Node("view", (one,), (), self.made[one].dtype), axes)
            args.append(one if None not in view.data else self._add(view))
        shapes = [self.made[one].shape for one in args]
        rank = max(map(len, shapes))
        long = [("1",) * (rank - len(shape)) + shape for shape in shapes]
        shape = tuple(next((side for side in sides if side != "1"), "1") for sides in zip(*long, strict=True))
        return replace(node, args=tuple(args), shape=shape)


MOST = 4
"""Maximum number of members of a stack that are selected from."""


def regrouped(graph: Graph) -> Graph | None:
    """Returns the graph without reshapes that merge the last two axes of a computed value; None without any."""
    writer, found = _Joined(graph), False
    for index, node in enumerate(graph.nodes):
        if not _joins(graph, node):
            continue
        try:
            writer.nodes[index] = writer.nodes[writer.flat(node.args[0], node.shape[-1])]
            found = True
        except Refused:
            continue
    return sorted_graph(writer.nodes, graph.outputs) if found else None


def _joins(graph: Graph, node: Node) -> bool:
    """Returns True for a reshape that merges the last two axes of a value other than an input."""
    if node.op != "reshape":
        return False
    before = graph.nodes[node.args[0]]
    return before.op != "input" and len(before.shape) == len(node.shape) + 1 and before.shape[:-2] == node.shape[:-1]


class _Joined:
    """Builder of values whose last two axes are merged.

    Attributes:
        nodes: of the graph, and new ones.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes = list(graph.nodes)

    def _added(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def flat(self, index: int, side: str) -> int:
        """Returns the index of a value with its last two axes merged to one of length `side`.

        Raises:
            Refused: an operation along these axes is not supported.
        """
        node = self.nodes[index]
        if len(node.shape) < 2:
            if node.shape == () or node.shape == ("1",):
                return index
            return self._along_last(index, node.shape[-1], side)
        if node.op == "reshape" and self.nodes[node.args[0]].shape == (*node.shape[:-2], side):
            return node.args[0]
        if node.shape[-2:] == ("1", "1"):
            raise Refused("it joins two axes of length 1")
        if node.op in ("map", "cast"):
            args = tuple(self._operand(node, one, side) for one in node.args)
            return self._added(replace(node, args=args, shape=(*node.shape[:-2], side)))
        if node.op == "window":
            return self._stacked(node, side)
        raise Refused("it joins axes of what it computes")

    def _operand(self, node: Node, arg: int, side: str) -> int:
        """Returns the index of an operand with its last two axes merged, by NumPy's broadcasting rules."""
        shape = self.nodes[arg].shape
        length = node.shape[-1]
        if not shape:
            return arg
        if len(shape) == 1:
            return arg if shape == ("1",) else self._along_last(arg, length, side)
        if shape[-1] == "1" and shape[-2] != "1":
            return self._repeated(arg, length, side)
        if shape[-2] == "1":
            raise Refused("it joins axes of which an operand has one")
        return self.flat(arg, side)

    def _position(self, side: str, name: str, length: str) -> int:
        """Returns the quotient or the remainder of positions by the length of a group."""
        iota = self._added(Node("iota", (), (side,), "int64"))
        by = (
            Node("constant", (), (), "int64", (int(length),))
            if length.isdigit()
            else Node("size", (), (), "int64", (length,))
        )
        return self._added(Node("map", (iota, self._added(by)), (side,), "int64", (name,)))

    def _repeated(self, arg: int, length: str, side: str) -> int:
        """Returns the value of a group for each of its elements."""
        node = self.nodes[arg]
        if node.op != "view" or list(node.data) != [*range(len(node.data) - 1), None]:
            raise Refused("it joins axes of what it computes, or in another order")
        return self._picked(node.args[0], self._position(side, "floor_divide", length), side)

    def _picked(self, index: int, number: int, side: str) -> int:
        """Returns elements of the last axis by index, selected from the inputs that the value is computed from."""
        node = self.nodes[index]
        if not node.shape or node.shape[-1] == "1":
            return index
        shape = (*node.shape[:-1], side)
        if node.op in ("map", "cast"):
            args = tuple(self._picked(one, number, side) for one in node.args)
            return self._added(replace(node, args=args, shape=shape))
        if node.op == "iota":
            return number
        if node.op == "view" and node.data[-1] == len(self.nodes[node.args[0]].shape) - 1:
            source = self._picked(node.args[0], number, side)
            return self._added(replace(node, args=(source,), shape=shape))
        if node.op != "input":
            raise Refused("it joins axes of what it reduces or chooses")
        return self._added(Node("pick", (index, number), shape, node.dtype, (len(node.shape) - 1,), node.name))

    def _along_last(self, arg: int, length: str, side: str) -> int:
        """Returns a value for each position within a group, repeated for all groups."""
        return self._picked(arg, self._position(side, "remainder", length), side)

    def _stacked(self, node: Node, side: str) -> int:
        """Returns the elements of a stack of a few values along the last axis, interleaved."""
        length = node.shape[-1]
        if not length.isdigit() or int(length) > MOST:
            raise Refused("it joins axes of a long stack")
        members = [self._member(node, place) for place in range(int(length))]
        number, which = self._position(side, "floor_divide", length), self._position(side, "remainder", length)
        chosen = [self._picked(one, number, side) for one in members]
        last = chosen[-1]
        for place, one in reversed(list(enumerate(chosen[:-1]))):
            wanted = self._added(Node("constant", (), (), "int64", (place,)))
            test = self._added(Node("map", (which, wanted), (side,), "bool", ("equal",)))
            last = self._added(Node("map", (test, one, last), self.nodes[one].shape, node.dtype, ("where",)))
        return last

    def _member(self, node: Node, place: int) -> int:
        """Returns the member of a stack at a position of the last axis, without that axis."""
        entry = AxisMap.of(node.data[-1])
        plain = all(AxisMap.of(one) == AxisMap("0", ((axis, 1),)) for axis, one in enumerate(node.data[:-1]))
        at = linear(entry.offset)
        if not plain or at.terms or entry.terms != ((len(node.data) - 1, 1),) or entry.every != 1:
            raise Refused("it joins axes of parts of arrays")
        source, other = self.nodes[node.args[0]], node.args[1] if len(node.args) > 1 else None
        here = place + at.constant
        inside = 0 <= here < int(source.shape[-1]) if source.shape[-1].isdigit() else None
        if entry.beyond in (ORDINARY, ABOVE) and inside is None:
            raise Refused("it joins axes of parts of arrays")
        if inside:
            return self._element(node.args[0], here)
        if other is None:
            raise Refused("it joins axes of parts of arrays")
        return self._element(other, place)

    def _element(self, index: int, place: int) -> int:
        """Returns the value along the last axis at a position: the only element, or a member of a stack."""
        node = self.nodes[index]
        if node.op == "window":
            return self._member(node, place)
        if node.op == "view" and node.data[-1] is None and list(node.data[:-1]) == list(range(len(node.data) - 1)):
            return node.args[0]
        raise Refused("it joins axes of parts of arrays")
