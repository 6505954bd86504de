"""Plan of windows: arrays are read at positions that are sums over result positions, some of them guarded.

An index is one text for each axis, an expression of sizes and of variables: `__0` is the position along the first axis of the
domain, `__r7` the one in the reduction of node 7. Calls stand for positions that are not sums: `edge(p, n)` is the nearest one of an axis
of `n`, `wrap(p, n)` the one that is left after whole turns, `reflect(p, n)` and `symmetric(p, n)` the mirrored one,
`value(7, ...)` what node 7 holds.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias, cast

from kernelmate.records import Size
from kernelmate.source import evaluate
from kernelmate.synthesis.elements import may_be_negative
from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.index_maps import (
    ABOVE,
    ORDINARY,
    OTHERWISE,
    AxisMap,
    Linear,
    existing,
    joined_again,
    linear,
    never_negative,
)
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.plan import DifferentReductions, Index, Key, Plan, Refused

UNROLLED = 32
"""Window elements that are unrolled if they are computed in different ways."""

MOST_READS = 40
"""Maximum number of array reads in one kernel, which keeps the text maintainable."""

parsed = lru_cache(maxsize=4096)(linear)


@dataclass(frozen=True, slots=True)
class StoreTarget:
    """The value stored in an output: at a key, `offset` elements along `axis` from the thread's position."""

    name: str
    key: Key
    shape: tuple[str, ...]
    place: Index


@dataclass(frozen=True, slots=True)
class Windows(Plan):
    """A graph laid out over the positions of its result.

    Attributes:
        sizes: the contract's sizes.
        ranges: the length of the axis of each variable.
        targets: the stored values.
    """

    sizes: tuple[Size, ...] = ()
    ranges: dict[str, Linear] = field(default_factory=dict)
    targets: tuple[StoreTarget, ...] = ()

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns the keys of an operation's operands; for a window that never leaves its source, only the source."""
        node, index = self.node(key), key[1]
        nodes = self.graph.nodes
        match node.op:
            case "map" | "cast":
                return tuple((arg, _aligned(nodes[arg], index)) for arg in node.args)
            case "view":
                places = {axis: place for place, axis in enumerate(node.data) if axis is not None}
                sides = enumerate(nodes[node.args[0]].shape)
                return ((node.args[0], tuple("0" if side == "1" else index[places[axis]] for axis, side in sides)),)
            case "reshape":
                return () if self.is_leaf(key) else ((node.args[0], self._regrouped(key)),)
            case "reduce":
                axis, variable = int(node.data[1] or 0), f"__r{key[0]}"
                self.ranges[variable] = existing(nodes[node.args[0]].shape[axis])
                return ((node.args[0], (*index[:axis], variable, *index[axis:])),)
            case "window":
                return self._window(key)
            case "take":
                source, chosen = node.args
                count = len(nodes[chosen].shape)
                picked = (chosen, index[:count])
                return ((source, (_value_of(picked), *index[count:])), picked)
            case "pick" | "along":
                return self._picked(key)
            case "gather":
                source, chosen = node.args
                picked = (chosen, index)
                return ((source, (*index, _value_of(picked))), picked)
        return ()

    def _picked(self, key: Key) -> tuple[Key, ...]:
        """Returns the keys of the element that an index selects along an axis, and of the index."""
        node, index, nodes = self.node(key), key[1], self.graph.nodes
        source, chosen = node.args
        if may_be_negative(self.graph, chosen):
            raise Refused("it has elements by computed indices, which may count from the end, beside parts of arrays")
        axis, numbers = int(node.data[0] or 0), nodes[chosen].shape
        count = len(numbers) if node.op == "pick" else 1
        mine = index[axis : axis + count] if node.op == "pick" else index
        picked = (chosen, tuple("0" if side == "1" else one for side, one in zip(numbers, mine, strict=True)))
        whole = (*index[:axis], _value_of(picked), *index[axis + count :])
        kept = tuple("0" if side == "1" else one for side, one in zip(nodes[source].shape, whole, strict=True))
        return ((source, kept), picked)

    def is_leaf(self, key: Key) -> bool:
        """Returns True if an operation is an array of the kernel, in its own or another shape."""
        node = self.node(key)
        if node.op != "reshape":
            return node.op == "input"
        if self.graph.nodes[node.args[0]].op != "input":
            return False
        groups = self._groups(node)
        return groups is None or any(len(own) > 1 for own, _ in groups)

    def name(self, key: Key) -> str:
        """Returns the name of the argument that a leaf reads."""
        node = self.node(key)
        return str((node if node.op == "input" else self.graph.nodes[node.args[0]]).data[0])

    def access(self, key: Key) -> str:
        """Overrides `Plan.access`."""
        return "flat"

    def guards(self, key: Key) -> tuple[str, ...] | None:
        """Returns expressions that must be at least zero, or divisible (`divides(p, k)`), for a window to lie in its source.

        The result is None if the window never lies in its source.
        """
        node = self.node(key)
        if len(node.args) == 1:
            return ()
        found: list[str] = []
        for axis, entry in enumerate(self._maps(node)):
            at, side = self._position(entry, key[1]), existing(self.graph.nodes[node.args[0]].shape[axis])
            if entry.beyond not in (OTHERWISE, ABOVE):
                continue
            limits = [] if entry.beyond == ABOVE else [at]
            limits.append(side.times(entry.every).plus(at, -1).plus(-1))
            for limit in limits:
                if never_negative(limit.times(-1).plus(-1), self.ranges):
                    return None
                if not never_negative(limit, self.ranges):
                    found.append(limit.bare())
            if entry.every > 1 and (at.constant % entry.every or any(step % entry.every for _, step in at.terms)):
                if all(step % entry.every == 0 for _, step in at.terms):
                    return None
                found.append(f"divides({at.bare()}, {entry.every})")
        return tuple(found)

    def _window(self, key: Key) -> tuple[Key, ...]:
        node, source = self.node(key), self.graph.nodes[self.node(key).args[0]]
        guards = self.guards(key)
        entries = zip(self._maps(node), source.shape, strict=True)
        inner = (node.args[0], tuple(self._source_index(entry, side, key[1]) for entry, side in entries))
        if guards == ():
            return (inner,)
        other = (node.args[1], _aligned(self.graph.nodes[node.args[1]], key[1]))
        return (other,) if guards is None else (inner, other)

    def _source_index(self, entry: AxisMap, side: str, index: Index) -> str:
        if side == "1":
            return "0"
        at = self._position(entry, index)
        if entry.every > 1:
            if at.constant % entry.every == 0 and all(step % entry.every == 0 for _, step in at.terms):
                terms = tuple((name, step // entry.every) for name, step in at.terms)
                return Linear(terms, at.constant // entry.every).text()
            return f"({at.text()} // {entry.every})"
        upper = existing(side).plus(at, -1).plus(-1)
        if entry.beyond in (ORDINARY, OTHERWISE, ABOVE):
            return at.text()
        if never_negative(at, self.ranges) and never_negative(upper, self.ranges):
            return at.text()
        return f"{entry.beyond}({at.bare()}, {existing(side).bare()})"

    def _position(self, entry: AxisMap, index: Index) -> Linear:
        return entry.position({axis: parsed(str(index[axis])) for axis, _ in entry.terms})

    def _maps(self, node: Node) -> Iterator[AxisMap]:
        return map(AxisMap.of, node.data)

    def _groups(self, node: Node) -> list[tuple[list[int], list[int]]] | None:
        """Returns the smallest groups of axes before and after a reshape that have the same elements; None without any.

        Only axes of a fixed length may follow the first axis of a group before the reshape.
        """
        source, after = self.graph.nodes[node.args[0]].shape, node.shape
        groups: list[tuple[list[int], list[int]]] = []
        own = later = 0
        while own < len(source) and later <= len(after):
            ends = ((end, stop) for end in range(own + 1, len(source) + 1) for stop in range(later, len(after) + 1))
            found = next((one for one in ends if self._same(source[own : one[0]], after[later : one[1]])), None)
            if found is None or any(not side.isdigit() for side in source[own + 1 : found[0]]):
                return None
            groups.append(([*range(own, found[0])], [*range(later, found[1])]))
            own, later = found
        return groups if own == len(source) and all(side == "1" for side in after[later:]) else None

    def _same(self, sides: Sequence[str], others: Sequence[str]) -> bool:
        """Returns True if two groups of axes have the same number of elements at all sizes."""

        def counts(several: Sequence[str]) -> list[int]:
            return [math.prod(int(evaluate(one, size)) for one in several) for size in self.sizes]

        return counts(sides) == counts(others)

    def sides_of(self, output: int, shape: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the shape over which a result is computed: the array's, or its own if that has the same elements regrouped."""
        own = self.graph.nodes[output].shape
        alike = len(own) == len(shape) and all(map(self._same, ([side] for side in shape), ([side] for side in own)))
        regrouped = own and not alike and self._same(shape, own)
        return own if regrouped else shape

    def _regrouped(self, key: Key) -> Index:
        """Returns the index before a reshape that splits or merges axes."""
        node = self.node(key)
        source = self.graph.nodes[node.args[0]].shape
        groups = self._groups(node)
        if groups is None:
            raise Refused("it changes the shape of an array between operations")
        found: list[str] = []
        for own, later in groups:
            at = Linear()
            for place in later:
                side = node.shape[place]
                scaled = [at.times(int(side))] if side.isdigit() else [parsed(f"{at.text()} * {side}")]
                at = joined_again(scaled[0].plus(parsed(str(key[1][place]))))
            inner = math.prod(int(source[axis]) for axis in own[1:])
            for axis in own:
                whole = at if inner == 1 else parsed(f"{at.text()} // {inner}")
                found.append(whole.text() if axis == own[0] else parsed(f"{whole.text()} % {source[axis]}").text())
                inner //= int(source[axis + 1]) if axis != own[-1] else 1
        return tuple(found)


def _value_of(key: Key) -> str:
    return f"value({', '.join([str(key[0]), *map(str, key[1])])})"


def valued(text: str) -> Key:
    """Returns the key of the value in a position of the form `value(node, index, ...)`."""
    call = cast(ast.Call, ast.parse(text, mode="eval").body)
    number, *index = call.args
    return cast(int, cast(ast.Constant, number).value), tuple(ast.unparse(one) for one in index)


def _aligned(arg: Node, index: Index) -> Index:
    behind = index[len(index) - len(arg.shape) :]
    return tuple("0" if side == "1" else one for side, one in zip(arg.shape, behind, strict=True))


OutputShapes: TypeAlias = "tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]"
"""Names and shapes of a kernel's outputs."""


def output_shapes(kernel: KernelText) -> OutputShapes:
    """Returns a kernel's outputs with their shapes in the contract."""

    def plain(side: str) -> str:
        return side.strip() if re.fullmatch(r"\s*\w+\s*", side) else f"({side.strip()})"

    outputs = kernel.outputs()
    return tuple(one.name for one in outputs), tuple(tuple(map(plain, one.shape or ())) for one in outputs)


def window_plan(graph: Graph, sizes: tuple[Size, ...], names: tuple[str, ...], shapes: tuple[tuple[str, ...], ...], *, together: bool = False) -> Windows:  # fmt: skip
    """Returns the plan of a graph with windows.

    Args:
        graph: the graph.
        sizes: the contract's sizes.
        names: the names of its outputs.
        shapes: the shapes of its outputs, as the contract has them.
        together: whether a thread computes several results, whose schedule refuses reads of what another thread writes.

    Raises:
        Refused: its outputs have different shapes, it reduces more than a window, or it has too many reads.
    """
    _refuse_long_reductions(graph)
    plan = laid_out(graph, sizes, names, shapes)
    if not together:
        refuse_others_reads(plan, names)
    reads = {key for key in walked(plan) if plan.is_leaf(key)}
    if len(reads) > MOST_READS:
        raise Refused(f"it reads {len(reads)} elements for each result, each written out")
    return plan


def laid_out(graph: Graph, sizes: tuple[Size, ...], names: tuple[str, ...], shapes: tuple[tuple[str, ...], ...]) -> Windows:  # fmt: skip
    """Returns the plan of a graph with windows and any reductions; arguments as for `window_plan`.

    Raises:
        Refused: its outputs have different shapes.
    """
    whole = tuple(size for size in sizes if all(size.values())) or sizes
    plan = Windows(graph, (), 0, (), "free", (), whole)
    outputs = []
    for one, shape in zip(graph.outputs, shapes, strict=True):
        while graph.nodes[one].op == "reshape":
            one = graph.nodes[one].args[0]  # the memory is the same
        outputs.append((one, plan.sides_of(one, shape)))
    first = outputs[0][1]
    if any(
        len(shape) != len(first) or not all(map(plan._same, ([s] for s in shape), ([s] for s in first)))
        for _, shape in outputs
    ):
        raise Refused("its outputs have different shapes")
    pieces = _pieces(plan, outputs)
    domain = first if pieces is None else pieces[0]
    long = [axis for axis, side in enumerate(domain) if side != "1"]
    index = tuple(f"__{long.index(axis)}" if axis in long else "0" for axis in range(len(domain)))
    plan.ranges.update({f"__{place}": existing(domain[axis]) for place, axis in enumerate(long)})
    targets: list[StoreTarget] = []
    for (one, shape), name in zip(outputs, names, strict=True):
        parts = [(one, Linear())] if pieces is None else _joined(graph, one, pieces[1])
        for node, offset in parts:
            place = list(index)
            if pieces is not None:
                place[pieces[1]] = parsed(place[pieces[1]]).plus(offset).text()
            targets.append(StoreTarget(name, (node, index), shape, tuple(place)))
    plan = replace(
        plan, domain=tuple(domain[a] for a in long), outputs=tuple(t.key for t in targets), targets=tuple(targets)
    )
    return plan


def _pieces(plan: Windows, outputs: list[tuple[int, tuple[str, ...]]]) -> tuple[tuple[str, ...], int] | None:
    """Returns the common shape of the pieces that every output joins, and the axis; None if there is none."""
    joined = [plan.graph.nodes[one] for one, _ in outputs]
    found: set[tuple[tuple[str, ...], int]] = set()
    for node in joined:
        axes = [
            axis for axis, entry in enumerate(node.data) if node.op == "window" and AxisMap.of(entry).beyond == ABOVE
        ]
        if len(axes) != 1:
            return None
        shapes = [plan.graph.nodes[one].shape for one, _ in _joined(plan.graph, plan.graph.nodes.index(node), axes[0])]
        if not all(plan._same([shape[axes[0]]], [shapes[0][axes[0]]]) for shape in shapes):
            return None
        found.add((shapes[0], axes[0]))
    return found.pop() if len(found) == 1 else None


def _joined(graph: Graph, index: int, axis: int) -> list[tuple[int, Linear]]:
    """Returns the pieces of a joined array, each with its position along an axis."""
    node = graph.nodes[index]
    if node.op != "window":
        raise Refused("it joins arrays of which one is empty")
    start = AxisMap.of(node.data[axis]).position({axis: Linear()}).times(-1)
    rest = graph.nodes[node.args[1]] if len(node.args) > 1 else None
    behind: list[tuple[int, Linear]] = []
    if rest is not None:
        behind = _joined(graph, node.args[1], axis)
    return [(node.args[0], start), *behind]


def _refuse_long_reductions(graph: Graph) -> None:
    """Refuses reductions other than over windows or few elements, since each thread would compute one completely."""
    for index, node in enumerate(graph.nodes):
        if node.op != "reduce":
            continue
        side, axis = graph.nodes[node.args[0]].shape[int(node.data[1] or 0)], int(node.data[1] or 0)
        if not side.isdigit() and not _slides(graph, node.args[0], axis):
            raise DifferentReductions(f"no schedule has {graph.reduction_text(index)} beside its other operations")
        if side.isdigit() and int(side) > 4096:
            raise Refused("its windows have more than 4096 elements")


def _slides(graph: Graph, index: int, axis: int) -> bool:
    """Returns True if an axis belongs to a sliding window."""
    node = graph.nodes[index]
    if node.op == "window":
        return any(
            (axis in [a for a, _ in entry.terms]) and len(entry.terms) > 1 for entry in map(AxisMap.of, node.data)
        )
    if node.op in ("map", "cast"):
        rank = len(node.shape)
        inner = [(arg, axis - rank + len(graph.nodes[arg].shape)) for arg in node.args]
        return any(_slides(graph, arg, place) for arg, place in inner if place >= 0)
    if node.op == "view":
        return node.data[axis] is not None and _slides(graph, node.args[0], int(node.data[axis] or 0))
    if node.op == "reduce":
        gone = int(node.data[1] or 0)
        return _slides(graph, node.args[0], axis + (axis >= gone))
    return False


def refuse_others_reads(plan: Windows, names: tuple[str, ...]) -> None:
    """Checks that no thread reads an element that another thread writes.

    Raises:
        Refused: one does.
    """
    own = {(target.name, target.place) for target in plan.targets}
    shapes = {target.name: target.shape for target in plan.targets}
    for key in walked(plan):
        if not plan.is_leaf(key):
            continue
        name, index = plan.name(key), tuple(parsed(str(one)).text() for one in key[1])
        same = name in names and len(shapes[name]) == len(plan.node(key).shape)
        if name in names and not (same and (name, index) in own):
            raise Refused(f"{name} is read where another thread may have written it")


def walked(plan: Windows) -> Iterator[Key]:
    """Yields every operation with its index, once."""
    seen: set[Key] = set()
    stack = list(plan.outputs)
    while stack:
        key = stack.pop()
        if key not in seen:
            seen.add(key)
            yield key
            stack += plan.operands(key)
