"""Splits a graph into stages that one block computes: each is an array in shared memory, a single number, or a result.

Blocks share the results along some of their axes, along which nothing is reduced. Values that do not depend on these axes are computed by
each block again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kernelmate.records import Size
from kernelmate.source import evaluate
from kernelmate.synthesis.elements import BY_NUMBER, COSTLY
from kernelmate.synthesis.graph import Graph, Node, pruned
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap
from kernelmate.synthesis.plan import Refused, long_sides, without_reshapes

LEAVES = frozenset({"input", "scalar", "size", "constant", "iota"})


@dataclass(frozen=True, slots=True)
class BlockStage:
    """A stage: the computation of one node.

    Attributes:
        target: the node of the whole graph.
        graph: what the stage computes; the value of an earlier stage with target N is the input `@N`.
        sides: the sides of its value, with those along which blocks share the results.
        block: for each of the block's axes, the value's axis, or None if it does not depend on it.
        level: the number of barriers before it.
        output: the number of the kernel's output that it stores; None for a value that later stages read.
    """

    target: int
    graph: Graph
    sides: tuple[str, ...]
    block: tuple[int | None, ...]
    level: int
    output: int | None

    @property
    def own(self) -> list[int]:
        """Returns the axes along which the threads of a block share the elements."""
        return [axis for axis, side in enumerate(self.sides) if side != "1" and axis not in self.block]

    @property
    def reductions(self) -> list[int]:
        """Returns the stage's reductions, from the innermost to the outermost."""
        return [index for index, node in enumerate(self.graph.nodes) if node.op == "reduce"]

    @property
    def reduced(self) -> tuple[str, ...]:
        """Returns the sides that are reduced or scanned, the outermost first."""
        nodes = self.graph.nodes
        own = [nodes[nodes[one].args[0]].shape[int(nodes[one].data[1] or 0)] for one in reversed(self.reductions)]
        own += [node.shape[int(node.data[1] or 0)] for node in nodes if node.op == "scan"]
        return tuple(own)

    def terms(self, size: Size) -> int:
        """Returns the number of terms that a block computes for the stage."""
        return math.prod(
            int(evaluate(side, size)) for side in (*(self.sides[axis] for axis in self.own), *self.reduced)
        )


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A kernel's stages in order, its graph, and the lengths of the axes that its blocks divide (`blocks`)."""

    graph: Graph
    blocks: tuple[str, ...]
    stages: tuple[BlockStage, ...]

    def cost(self, size: Size, processors: int) -> tuple[int, int]:
        """Returns the operations that each processor computes in sequence, and those that are repeated in other blocks."""
        count = math.prod(int(evaluate(side, size)) for side in self.blocks)
        each = sum(one.terms(size) for one in self.stages)
        again = sum(one.terms(size) for one in self.stages if None in one.block)
        return -(-count // processors) * each, (count - 1) * again


def block_plans(graph: Graph, *, joins: bool) -> Iterator[BlockPlan]:
    """Yields the plans of a graph: one block for everything, and those whose blocks divide the results along one or two axes.

    Args:
        graph: as it was traced.
        joins: True if a joined or padded array needs arrays of its parts, although these are cheap to compute.

    Raises:
        Refused: it has an operation without a stage, or nothing that needs one.
    """
    graph = without_reshapes(graph)
    cutter = _BlockCutter(graph, joins=joins)
    yield cutter.plan(())
    single = [one for axis in range(len(graph.nodes[graph.outputs[0]].shape)) for one in cutter.shared_axes(axis)]
    for place, first in enumerate(single):
        yield from _tried(cutter, (first,))
        for second in single[place + 1 :]:
            yield from _tried(cutter, (first, second))


def _tried(cutter: _BlockCutter, axes: Sequence[tuple[int, ...]]) -> Iterator[BlockPlan]:
    try:
        yield cutter.plan(axes)
    except Refused:
        return


class _BlockCutter:
    """Finds the nodes of a graph that need a stage.

    Attributes:
        targets: the nodes whose values later stages read.
    """

    def __init__(self, graph: Graph, *, joins: bool) -> None:
        self.graph, self.nodes, self.joins = graph, graph.nodes, joins
        self.users: dict[int, list[int]] = {}
        for index, node in enumerate(self.nodes):
            if node.op in ("recur", "state", "scatter", "segment", "repeat"):
                raise Refused(f"it has a {node.op} beside reductions")
            for arg in node.args:
                self.users.setdefault(arg, []).append(index)
        self.roots = [
            index
            for index, node in enumerate(self.nodes)
            if node.op in ("reduce", "scan") and not self._is_inner(index)
        ]
        self.targets = {self._summit(root) for root in self.roots}
        self.targets |= {one for index in range(len(self.nodes)) for one in self._rearranged(index)}
        self.targets |= {one for index in range(len(self.nodes)) for one in self._repeated(index)}
        if not self.targets - {*graph.outputs}:
            raise Refused("it has no values that others need as a whole")

    def _is_inner(self, index: int) -> bool:
        """Returns True for a reduction of which the only use is another one of the same kind."""
        node, users = self.nodes[index], self.users.get(index, [])
        if node.op != "reduce" or len(users) != 1 or str(node.data[0]).startswith("arg"):
            return False
        user = self.nodes[users[0]]
        return user.op == "reduce" and user.data[0] == node.data[0] and index not in self.graph.outputs

    def _summit(self, root: int) -> int:
        """Returns the last operation of the map that follows a reduction and uses nothing else of its shape but leaves."""
        at = last = root
        while at not in self.graph.outputs and len(self.users[at]) == 1 and self.nodes[root].op == "reduce":
            at = self.users[at][0]
            node = self.nodes[at]
            if node.op not in ("map", "cast", "view") or long_sides(node) != long_sides(self.nodes[root]):
                break
            others = (one for arg in node.args for one in self._below(arg) if arg != last)
            if any(self.nodes[one].op in ("reduce", "scan") and one not in self._below(root) for one in others):
                break
            last = at
        return last

    def _below(self, *starts: int, through: Callable[[int], bool] = lambda _: True) -> set[int]:
        """Returns nodes and all that they are computed from, up to those through which the search does not go."""
        found, stack = set[int](), [*starts]
        while stack:
            one = stack.pop()
            if one not in found:
                found.add(one)
                stack += self.nodes[one].args if through(one) else ()
        return found

    def _rearranged(self, index: int) -> Iterator[int]:
        """Yields the computed operands of an operation that reads other elements than its own."""
        node = self.nodes[index]
        if node.op not in ("reshape", "window", *BY_NUMBER):
            return
        source = self._unviewed(node.args[0])
        if node.op == "reshape":
            if self.nodes[source].op not in ("input", "reshape") or source != node.args[0]:
                yield node.args[0]
        elif node.op == "window" and len(node.args) > 1:
            yield from (one for one in map(self._moved, node.args) if self._computes(one) and self._is_held(one))
        elif node.op in BY_NUMBER and self._computes(source):
            yield node.args[0]

    def _is_held(self, index: int) -> bool:
        """Returns True if a joined or padded value gets an array of its own: `joins` asks for it, or it is costly to compute."""
        cheap = (*LEAVES, "view", "window", "map", "cast", "reshape")
        below = map(self.nodes.__getitem__, self._below(index, through=lambda one: self.nodes[one].op != "reshape"))
        return self.joins or any(
            node.op not in cheap or (node.op == "map" and node.data[0] in COSTLY) for node in below
        )

    def _moved(self, index: int) -> int:
        """Returns the source of a window without a border, below views."""
        index = self._unviewed(index)
        node = self.nodes[index]
        return self._moved(node.args[0]) if node.op == "window" and len(node.args) == 1 else index

    def _unviewed(self, index: int) -> int:
        while self.nodes[index].op == "view":
            index = self.nodes[index].args[0]
        return index

    def _computes(self, index: int) -> bool:
        """Returns True if a value is more than an element of an array and arithmetic on it."""
        return any(self.nodes[one].op not in (*LEAVES, "view") for one in self._below(index))

    def _repeated(self, index: int) -> Iterator[int]:
        """Yields a costly value that several stages need, or a reduction needs for each of several results."""
        node = self.nodes[index]
        if node.op != "map" or node.data[0] not in COSTLY or not long_sides(node):
            return
        top, users = index, self.users.get(index, [])
        while (
            len(users) == 1 and self.nodes[users[0]].op in ("map", "cast") and self.nodes[users[0]].shape == node.shape
        ):
            top = users[0]
            users = self.users.get(top, [])
        if top not in self.graph.outputs and (len(users) > 1 or self._is_broadcast(top)):
            yield top

    def _is_broadcast(self, index: int) -> bool:
        """Returns True if the map above a value has more elements, and is reduced."""
        stack = [*self.users.get(index, [])]
        while stack:
            node = self.nodes[stack[-1]]
            above = stack.pop()
            if node.op in ("map", "cast") and len(long_sides(node)) > len(long_sides(self.nodes[index])):
                return any(self.nodes[one].op == "reduce" for one in self.users.get(above, []))
            if node.op in ("view", "cast"):
                stack += self.users.get(above, [])
        return False

    def shared_axes(self, axis: int) -> Iterator[tuple[int, ...]]:
        """Yields the axes of all outputs, for an axis of the first one, along which blocks may share the results."""
        side = self.nodes[self.graph.outputs[0]].shape[axis]
        found = [axis]
        for one in self.graph.outputs[1:]:
            shape = self.nodes[one].shape
            if side not in shape:
                return
            found.append(shape.index(side))
        if side != "1":
            yield tuple(found)

    def plan(self, axes: Sequence[tuple[int, ...]]) -> BlockPlan:
        """Returns the plan of blocks that share some axes, given for each output.

        Raises:
            Refused: a value is needed for other blocks' positions than its own.
        """
        places = [self._placed(one) for one in axes]
        levels: dict[int, int] = {}
        stages: list[BlockStage] = []
        for target in sorted(self.targets):
            used = self.targets & self._below(*self.nodes[target].args, through=lambda one: one not in self.targets)
            levels[target] = max((levels[one] + 1 for one in used), default=0)
            if target not in self.graph.outputs or self.users.get(target):
                stages.append(self._stage(target, places, levels[target], None))
        last = max(levels.values(), default=0) + 1
        for number, one in enumerate(self.graph.outputs):
            stages.append(self._stage(one, places, last, number))
        blocks = tuple(self.nodes[self.graph.outputs[0]].shape[one[0]] for one in axes)
        return BlockPlan(self.graph, blocks, tuple(sorted(stages, key=lambda one: one.level)))

    def _stage(self, target: int, places: Sequence[dict[int, set[int | None]]], level: int, output: int | None) -> BlockStage:  # fmt: skip
        found: list[int | None] = []
        for known in places:
            axes = known.get(target, {None})
            if len(axes) != 1 or -1 in axes:
                raise Refused("a value is needed by several blocks")
            found.append(next(iter(axes)))
        nodes = list(self.nodes)
        kept = output is not None and target in self.targets and self.users.get(target)
        for one in self.targets - (set() if kept else {target}):
            nodes[one] = Node("input", (), nodes[one].shape, nodes[one].dtype, (f"@{one}",), nodes[one].name)
        part = without_reshapes(pruned(nodes, [target]))
        return BlockStage(target, part, self.nodes[target].shape, tuple(found), level, output)

    def _placed(self, axes: Sequence[int]) -> dict[int, set[int | None]]:
        """Returns the axes of each node that follow an axis of the outputs: None for no axis, -1 for positions of other blocks."""
        found: dict[int, set[int | None]] = {}
        stack: list[tuple[int, int | None]] = list(zip(self.graph.outputs, axes, strict=True))
        while stack:
            index, axis = stack.pop()
            if axis in found.setdefault(index, set()):
                continue
            found[index].add(axis)
            node = self.nodes[index]
            stack += [(arg, self._axis_of(node, place, axis)) for place, arg in enumerate(node.args)]
        return found

    def _axis_of(self, node: Node, place: int, axis: int | None) -> int | None:
        """Returns the axis of an operand that follows an axis of an operation."""
        if axis is None or axis == -1:
            return axis
        shape = self.nodes[node.args[place]].shape
        match node.op:
            case "map" | "cast":
                own = axis - (len(node.shape) - len(shape))
                return own if own >= 0 and shape[own] != "1" else None
            case "view":
                found = node.data[axis]
                return None if found is None else int(found)
            case "reduce":
                return axis if axis < int(node.data[1] or 0) else axis + 1
            case "reshape":
                return axis if node.shape[: axis + 1] == shape[: axis + 1] else -1
            case "scan":
                return axis if axis != int(node.data[1] or 0) else -1
            case "window" if place > 0:
                return axis if shape else None
            case "window":
                maps = [AxisMap.of(one) for one in node.data]
                moved = [own for own, one in enumerate(maps) if any(axis == term for term, _ in one.terms)]
                if len(moved) == 1 and _is_kept(maps[moved[0]], axis) and shape[moved[0]] == node.shape[axis]:
                    return moved[0]
                return -1 if moved else None
        return -1


def _is_kept(one: AxisMap, axis: int) -> bool:
    """Returns True if a window maps an axis to the source's axis of the same number, without offset or step."""
    return one.terms == ((axis, 1),) and one.offset == "0" and one.every == 1 and one.beyond == ORDINARY
