"""Splits a graph into stages per row: reductions, products with arrays that all rows share, and maps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernelmate.synthesis.graph import Graph, Node, pruned
from kernelmate.synthesis.plan import Key, Plan, Refused, free_plan, long_sides, walk, without_reshapes

_LEAVES = frozenset({"input", "scalar", "size", "constant", "iota"})
_OPERATIONS = _LEAVES | {"map", "cast", "view", "reduce"}


@dataclass(frozen=True, slots=True)
class RowStage:
    """A stage: the computation of one value per row, which results or later stages use.

    Attributes:
        target: the node of the whole graph that the stage computes.
        plan: the stage's computation, over its own domain; the value of an earlier stage with target N is the array `@N`.
        row: the domain's axis of rows.
        output: the index of the kernel's output that the stage computes; None for a value that other stages read.
    """

    target: int
    plan: Plan
    row: int
    output: int | None

    @property
    def gone(self) -> list[int]:
        """Returns the domain axes that the stage's reduction removes."""
        kept = {one for one in self.plan.outputs[0][1] if one is not None}
        return [axis for axis in range(len(self.plan.domain)) if axis not in kept]

    @property
    def kept(self) -> list[int]:
        """Returns the axes of the stage's value, without the axis of rows."""
        return [int(one) for one in self.plan.outputs[0][1] if one is not None and one != self.row]

    @property
    def reduction(self) -> Key | None:
        """Returns the stage's reduction; None for a map."""
        found = [key for key in walk(self.plan) if self.plan.node(key).op == "reduce"]
        return found[-1] if found else None


def row_stages(graph: Graph) -> list[RowStage]:
    """Returns the stages of a graph in order of dependency, with the stages of results last.

    Raises:
        Refused: its results are not rows of one number, or rows depend on each other.
    """
    graph = without_reshapes(graph)
    cutter = _Cutter(graph)
    targets = [*sorted(cutter.targets - {*graph.outputs}), *dict.fromkeys(graph.outputs)]
    return [stage for one in targets for stage in cutter.stages(one)]


class _Cutter:
    """Collects the stages of a graph, by the nodes that they compute."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.nodes = graph, graph.nodes
        self.rows: dict[int, int | None] = {}
        sides = {self.nodes[one].shape[:1] for one in graph.outputs}
        if len(sides) != 1 or sides & {(), ("1",)}:
            raise Refused("its results are not rows of one number")
        for one in graph.outputs:
            self._follow(one, 0)
        self.users: dict[int, set[int]] = {}
        for index, node in enumerate(self.nodes):
            for arg in node.args:
                self.users.setdefault(arg, set()).add(index)
        reductions = [index for index, node in enumerate(self.nodes) if node.op == "reduce"]
        chained = {self.nodes[one].args[0] for one in reductions if self._operand(one) != self.nodes[one].args[0]}
        self.roots = [one for one in reductions if one not in chained]
        self.targets: set[int] = set()
        if not self.roots:
            raise Refused("it reduces nothing")
        for root in self.roots:
            self.targets.add(self._summit(root))
        for root in self.roots:
            if self._kept(root):
                self.targets |= set(self._rows_of(root))

    def _follow(self, index: int, axis: int | None) -> None:
        """Records which axis of a node is the axis of rows.

        Raises:
            Refused: a node is needed along two axes, is reduced although it is the same for all rows, or has another operation.
        """
        node = self.nodes[index]
        if node.op not in _OPERATIONS:
            raise Refused(f"it has a {node.op} beside sums of products")
        if node.op in _LEAVES:
            return
        if index in self.rows:
            if self.rows[index] != axis:
                raise Refused("it combines different rows")
            return
        self.rows[index] = axis
        if node.op == "reduce":
            if axis is None or node.data[0] not in ("sum", "max", "min"):
                raise Refused("it reduces what is the same for all rows, or otherwise than by sums and extremes")
            self._follow(node.args[0], axis if axis < int(node.data[1] or 0) else axis + 1)
            return
        for arg in node.args:
            self._follow(arg, self._axis_of(node, arg, axis))

    def _axis_of(self, node: Node, arg: int, axis: int | None) -> int | None:
        """Returns the axis of an operand that is the axis of rows."""
        if axis is None:
            return None
        if node.op == "view":
            found = node.data[axis]
            return None if found is None else int(found)
        shape = self.nodes[arg].shape
        place = axis - (len(node.shape) - len(shape))
        return place if place >= 0 and shape[place] != "1" else None

    def _operand(self, root: int) -> int:
        """Returns the operand of a chain of reductions of one kind."""
        below = self.nodes[root].args[0]
        inner = self.nodes[below]
        if inner.op == "reduce" and inner.data[0] == self.nodes[root].data[0] and len(self.users[below]) == 1:
            return self._operand(below)
        return below

    def _kept(self, root: int) -> int:
        """Returns the number of axes of a reduction's result, without the axis of rows."""
        return len(long_sides(self.nodes[root])) - 1

    def _summit(self, root: int) -> int:
        """Returns the last operation of the map that follows a reduction and needs no stage of its own.

        Such a map uses only the reduction's result and values of fewer axes.
        """
        at = last = root
        while at not in self.graph.outputs:
            (user, *others) = self.users[at]
            node = self.nodes[user]
            if user in self.graph.outputs and self.users.get(user):
                break  # another result needs it, too
            if (
                others
                or node.op == "reduce"
                or long_sides(node) != long_sides(self.nodes[root])
                or user in self.targets
            ):
                break
            if self._roots_below(user) != {root}:
                break
            at = user
            last = user if node.op != "view" or user in self.graph.outputs else last
        return last

    def _roots_below(self, index: int) -> set[int]:
        """Returns the reductions of the highest rank that a value uses without stages in between."""
        found, stack, seen = set[int](), [index], set[int]()
        while stack:
            one = stack.pop()
            if one in seen or (one in self.targets and one != index):
                continue
            seen.add(one)
            if one in self.roots:
                found.add(one)
            else:
                stack += self.nodes[one].args
        return found

    def _rows_of(self, root: int) -> Iterator[int]:
        """Yields the per-row operands of a product, which are computed once for several results.

        A per-row operand has no axis that the result lacks.
        """
        stack = [(self._operand(root), self._operand_axes(root))]
        seen: set[int] = set()
        while stack:
            index, kept = stack.pop()
            node = self.nodes[index]
            if index in seen or index in self.targets or self.rows.get(index, 0) is None:
                continue
            seen.add(index)
            if node.op == "view":
                stack.append((node.args[0], {int(one) for place, one in enumerate(node.data) if place in kept and one is not None}))  # fmt: skip
                continue
            own = {place for place, side in enumerate(node.shape) if side != "1"}
            if len(kept & own) < self._kept(root) and node.op not in ("scalar", "size", "constant", "iota"):
                if len(own) > 1 and index in self.rows:
                    yield index
                continue
            for arg in node.args if node.op in ("map", "cast") else ():
                more = len(node.shape) - len(self.nodes[arg].shape)
                stack.append((arg, {one - more for one in kept if one >= more}))

    def _operand_axes(self, root: int) -> set[int]:
        """Returns the axes of the reduced value that the result keeps, without the axis of rows."""
        chain = [root]
        while chain[-1] != self._operand(root):
            chain.append(self.nodes[chain[-1]].args[0])
        left = list(range(len(self.nodes[chain[-1]].shape)))
        for one in reversed(chain[:-1]):
            left.pop(int(self.nodes[one].data[1] or 0))
        row = self._axis_under(root)
        return {one for one in left if one != row}

    def stages(self, target: int) -> Iterator[RowStage]:
        """Yields the stages that compute a target; a target that is returned several times has one for each output."""
        nodes = list(self.nodes)
        for one in self.targets - {target}:
            nodes[one] = Node("input", (), nodes[one].shape, nodes[one].dtype, (f"@{one}",), nodes[one].name)
        part = pruned(nodes, [target])
        plan = free_plan(part)
        axis = self.rows.get(target, 0)
        roots = self._roots_below(target)
        if roots:
            (root,) = roots
            axis, shape = self._axis_under(root), self.nodes[self._operand(root)].shape
        else:
            shape = self.nodes[target].shape
        if axis is None or shape[axis] == "1":
            raise Refused("its results are not rows of one number")
        row = sum(side != "1" for side in shape[:axis])
        places = [place for place, one in enumerate(self.graph.outputs) if one == target]
        if not places:
            yield RowStage(target, plan, row, None)
        for place in places:
            yield RowStage(target, replace(plan), row, place)

    def _axis_under(self, root: int) -> int | None:
        """Returns the axis of a reduced array that is the axis of rows."""
        axis, at = self.rows[root], root
        while axis is not None:
            axis = axis if axis < int(self.nodes[at].data[1] or 0) else axis + 1
            at = self.nodes[at].args[0]
            if at == self._operand(root):
                break
        return axis
