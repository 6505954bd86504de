"""Loops along one axis, each in terms of the results of those before it: their order, and the computation of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kernelmate.synthesis.elements import aligned
from kernelmate.synthesis.graph import Datum, Graph, Node, sorted_graph
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap
from kernelmate.synthesis.plan import Index, Key, Refused
from kernelmate.synthesis.recurrences import ALL, LAST
from kernelmate.synthesis.reductions import RESULT_NAMES, STARTS
from kernelmate.synthesis.schedules.vector_stages import COMBINING, VectorSteps

STEP = "step"
"""Position along the axis of the loops in an index."""


def scans_as_loops(graph: Graph) -> Graph:
    """Returns the graph in which scans of floats are loops, which carry the result so far.

    Raises:
        Refused: a scan is of several operations for each element.
    """
    nodes = list(graph.nodes)
    number = max((int(str(node.data[0])) for node in nodes if node.op == "recur"), default=-1)
    for index, node in enumerate(graph.nodes):
        if node.op != "scan" or not node.dtype.startswith("float"):
            continue
        kind, axis, backwards = node.data
        if kind not in COMBINING:
            raise Refused(f"it uses a scan ({kind}) in another loop along the same axis")
        number += 1
        side = node.shape[int(axis or 0)]
        begin = len(nodes)
        nodes.append(Node("constant", (), (), node.dtype, (STARTS[str(kind)],)))
        nodes.append(Node("state", (), node.shape, node.dtype, (number, 0)))
        nodes.append(Node("map", (begin + 1, node.args[0]), node.shape, node.dtype, (COMBINING[str(kind)],), node.name))
        data = (number, 0, ALL, axis, backwards, side)
        nodes[index] = Node("recur", (begin, begin + 2), node.shape, node.dtype, data, node.name)
    return sorted_graph(nodes, graph.outputs)


def without_first_steps(graph: Graph) -> Graph:
    """Returns the graph without the first elements of joined arrays where `np.where` takes another value for the first step.

    A reference that treats step 0 before its loop and assigns in place (`c[:, 0] /= b[:, 0]`) has such arrays.
    """
    return _Later(graph).graph()


class _Later:
    """Rewrites values that are only used at positions other than 0 along an axis."""

    def __init__(self, graph: Graph) -> None:
        self.outputs, self.nodes = graph.outputs, list(graph.nodes)

    def graph(self) -> Graph:
        for index, node in enumerate([*self.nodes]):
            axis = self._first_along(node) if node.mapped == "where" else None
            if axis is not None:
                condition, first, later = node.args
                own = axis - (len(node.shape) - len(self.nodes[later].shape))
                self.nodes[index] = replace(node, args=(condition, first, self._later(later, own)))
        return sorted_graph(self.nodes, self.outputs)

    def _first_along(self, node: Node) -> int | None:
        """Returns the axis along which a `where` selects position 0 only; None for any other selection."""
        index = node.args[0]
        condition, axis = self.nodes[index], len(node.shape) - len(self.nodes[index].shape)
        places: tuple[int | None, ...] = tuple(range(len(condition.shape)))
        while condition.op == "view":
            places = tuple(None if one is None else _axis_or_none(condition.data[one]) for one in places)
            condition = self.nodes[condition.args[0]]
        if condition.mapped != "equal":
            return None
        position, zero = (self.nodes[one] for one in condition.args)
        if position.op != "iota" or zero.op != "constant" or zero.data[0] != 0:
            return None
        return axis + places.index(0) if 0 in places else None

    def _later(self, index: int, axis: int) -> int:
        """Returns the node that gives a value's elements at positions after 0 of an axis."""
        node = self.nodes[index]
        if axis < 0 or axis >= len(node.shape) or node.shape[axis] == "1":
            return index
        if node.op == "window" and len(node.args) == 2 and self._joins_first(node, axis):
            return self._later(node.args[1], axis) if self.nodes[node.args[1]].shape == node.shape else index
        if node.op == "view":
            own = _axis_or_none(node.data[axis])
            args = node.args if own is None else (self._later(node.args[0], own),)
        elif node.op in ("map", "cast"):
            args = tuple(self._later(one, axis - (len(node.shape) - len(self.nodes[one].shape))) for one in node.args)
        else:
            return index
        if args == node.args:
            return index
        self.nodes.append(replace(node, args=args))
        return len(self.nodes) - 1

    def _joins_first(self, node: Node, axis: int) -> bool:
        """Returns True if a window has its own source only at position 0 of an axis."""
        maps, sides = [AxisMap.of(one) for one in node.data], self.nodes[node.args[0]].shape
        plain = [one.terms == ((place, 1),) and one.offset == "0" and one.every == 1 for place, one in enumerate(maps)]
        within = [one.beyond == ORDINARY or place == axis for place, one in enumerate(maps)]
        return all(plain) and all(within) and sides[axis] == "1"


def _axis_or_none(entry: Datum) -> int | None:
    return None if entry is None else int(entry)


@dataclass(frozen=True, slots=True)
class Sweeps(VectorSteps):
    """Plan in which an index has the text of a position for each axis; reductions are along the steps."""

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns where the operands of an operation are evaluated; for a reduction, at one step."""
        node, index = self.node(key), key[1]
        if node.op != "reduce":
            return VectorSteps.operands(self, key)
        axis = int(node.data[1] or 0)
        return ((node.args[0], (*index[:axis], STEP, *index[axis:])),)


@dataclass(slots=True)
class SweepLoop:
    """One loop: recurrences that run side by side, and reductions over the steps.

    Attributes:
        numbers: the numbers of the loops of the graph.
        results: the results of the recurrences that are needed.
        folds: the reductions.
        stores: the outputs that are stored in each step.
    """

    numbers: list[int]
    backwards: bool
    results: list[Key] = field(default_factory=list)
    folds: list[Key] = field(default_factory=list)
    stores: list[int] = field(default_factory=list)


class SweepLoops:
    """The loops of a graph, in order.

    Args:
        plan: the graph.
        domain: the largest output's shape, its axis of steps, which is -1 if outputs have none, and the number of
            steps.
        at: the texts of the positions along the other axes.
        bare: returns the key below operations without effect.

    Attributes:
        keys: the outputs, at a thread's positions.
        loops: the loops, which compute the outputs of each step.

    Raises:
        Refused: the loops are along different axes, or need results of other steps.
    """

    def __init__(self, plan: Sweeps, domain: tuple[Sequence[str], int, str], at: Sequence[str], bare: Callable[[Key], Key]) -> None:  # fmt: skip
        self.plan, self.graph, self.at, self.bare = plan, plan.graph, at, bare
        shape, axis, self.count = domain
        places = [self._indexed(self.graph.nodes[one].shape, shape, axis) for one in self.graph.outputs]
        self.keys: list[Key] = [*zip(self.graph.outputs, places, strict=True)]
        self.loops: list[SweepLoop] = []
        self._open: set[Key] = set()
        self._known: dict[Key, int] = {}
        for number, key in enumerate(self.keys):
            last = self._loop_of(key)
            if STEP in key[1]:
                if last < 0:
                    raise Refused("a result of each step needs no loop")
                self.loops[last].stores.append(number)

    def _loop_of(self, key: Key) -> int:
        """Returns the number of the last loop that a value depends on, creating loops as needed; -1 for none."""
        key = self.bare(key)
        if key in self._known:
            return self._known[key]
        if key in self._open:
            return -1
        self._open.add(key)
        node = self.plan.node(key)
        if node.op == "recur":
            found = self._recurrence(key)
        elif node.op == "reduce":
            found = self._fold(key)
        else:
            found = max((self._loop_of(one) for one in self.plan.operands(key)), default=-1)
        self._open.discard(key)
        self._known[key] = found
        return found

    def turns(self, key: Key) -> tuple[Key, ...]:
        """Returns the keys of a loop's start values, then of its values after one step."""
        node, index = self.plan.node(key), key[1]
        axis = int(node.data[3] or 0)
        if any(len(self.graph.nodes[one].shape) > len(node.shape) for one in node.args):
            raise Refused("a loop carries numbers beside vectors")
        whole = (*index[:axis], STEP, *index[axis + 1 :])
        return tuple((one, aligned(self.graph.nodes[one], whole)) for one in node.args)

    def _recurrence(self, key: Key) -> int:
        node, index = self.plan.node(key), key[1]
        axis, number, backwards = int(node.data[3] or 0), int(node.data[0] or 0), bool(node.data[4])
        if index[axis] != (None if node.data[2] == LAST else STEP) or any(one not in (None, *self.at) for place, one in enumerate(index) if place != axis):  # fmt: skip
            raise Refused("a loop needs results of other steps of another loop")
        if not node.dtype.startswith("float"):
            raise Refused("it carries other than floating-point values through several loops")
        mine = next((place for place, one in enumerate(self.loops) if number in one.numbers), None)
        if mine is None:
            after, late = -1, -1
            for one in self.turns(key):
                after = max(after, self._loop_of(one))
                late = max(late, self._late(one))
            mine = self._joined(number, backwards, after, late)
        loop = self.loops[mine]
        if key not in loop.results:
            loop.results.append(key)
        return mine

    def _late(self, key: Key) -> int:
        """Returns the last loop of which a value needs the results after all steps; -1 for none."""
        key = self.bare(key)
        node = self.plan.node(key)
        if node.op == "reduce" or (node.op == "recur" and node.data[2] == LAST):
            return self._known.get(key, -1)
        if node.op == "recur":
            return -1
        return max((self._late(one) for one in self.plan.operands(key)), default=-1)

    def _joined(self, number: int, backwards: bool, after: int, late: int) -> int:
        """Adds a recurrence to loop number `after` if that has the same direction, else to a new loop; returns the loop's number."""
        if after >= 0 and after > late and self.loops[after].backwards == backwards:
            self.loops[after].numbers.append(number)
            return after
        self.loops.append(SweepLoop([number], backwards))
        return len(self.loops) - 1

    def _fold(self, key: Key) -> int:
        node = self.plan.node(key)
        (operand,) = self.plan.operands(key)
        side = self.graph.nodes[node.args[0]].shape[int(node.data[1] or 0)]
        if side != self.count or node.data[0] not in RESULT_NAMES or not node.dtype.startswith("float"):
            raise Refused("it reduces otherwise than along the steps of its loops")
        mine = self._loop_of(operand)
        if mine < 0 or self._late(operand) >= mine:
            self.loops.append(SweepLoop([], backwards=False))
            mine = len(self.loops) - 1
        self.loops[mine].folds.append(key)
        return mine

    def writer(self, number: int) -> int:
        """Returns the loop that stores an output of each step."""
        return next(place for place, loop in enumerate(self.loops) if number in loop.stores)

    def roots(self, place: int) -> list[Key]:
        """Returns the values that a loop computes in each step."""
        loop = self.loops[place]
        found = [self.keys[one] for one in loop.stores]
        found += [self.plan.operands(key)[0] for key in loop.folds]
        for key in loop.results:
            turns = self.turns(key)
            found += turns[len(turns) // 2 :]
        return found

    def is_used(self, wanted: Key, place: int) -> bool:
        """Returns True if loop number `place` needs the value `wanted`."""
        return wanted in self._below(self.roots(place))

    def reads(self, name: str) -> Iterator[tuple[int, Index]]:
        """Yields the reads of an array: the number of the loop (for reads after all loops, the count of loops), and the index."""
        ends = [key for key in self.keys if STEP not in key[1]]
        for place in range(len(self.loops) + 1):
            inside = place < len(self.loops)
            for key in self._below([*self.roots(place), *self._starts(place)] if inside else ends):
                node = self.plan.node(key)
                if node.op == "input" and node.data[0] == name:
                    yield place, key[1]

    def start(self, turn: Key) -> Key:
        """Returns the key of what a loop begins with, for that at a step."""
        return turn[0], tuple(None if one == STEP else one for one in turn[1])

    def _starts(self, place: int) -> list[Key]:
        found: list[Key] = []
        for key in self.loops[place].results:
            turns = self.turns(key)
            found += map(self.start, turns[: len(turns) // 2])
        return found

    def _below(self, roots: Sequence[Key]) -> Iterator[Key]:
        """Yields values and what they are computed from, up to results of loops."""
        seen, stack = set[Key](), [*roots]
        while stack:
            key = self.bare(stack.pop())
            if key not in seen:
                seen.add(key)
                yield key
                stack += () if self.plan.node(key).op in ("recur", "reduce") else self.plan.operands(key)

    def state_index(self, result: Key) -> Index:
        """Returns the index of the states of a recurrence at a step."""
        node, index = self.plan.node(result), result[1]
        axis = int(node.data[3] or 0)
        return (*index[:axis], STEP, *index[axis + 1 :])

    def _indexed(self, shape: Sequence[str], whole: Sequence[str], axis: int) -> Index:
        """Returns the index of an output: that of the largest one, or that without the steps."""
        rest = [side for place, side in enumerate(whole) if place != axis]
        if tuple(shape) not in (tuple(whole), tuple(rest)):
            raise Refused("its results have different shapes")
        at = iter(self.at)
        steps = axis if tuple(shape) == tuple(whole) else -1
        return tuple(STEP if place == steps else None if side == "1" else next(at) for place, side in enumerate(shape))
