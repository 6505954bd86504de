"""Assigns a domain to a graph that is an element-wise map or operates on rows or columns; refuses other graphs with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from kernelmate.synthesis.graph import Graph, Node, pruned, sorted_graph
from kernelmate.synthesis.sizes import product_text

Index: TypeAlias = "tuple[int | str | None, ...]"
"""For each axis of a node, the domain axis that indexes it, or None for length 1; or `FLAT` alone.

`@7` stands for the value of node 7, which selects an element or a row. `#1/3` is position 1 of an axis of length 3,
which selects a part of an array. `flat/pixels%channels` is an axis of an array of another shape: the element's number
in the whole domain, divided by `pixels`, the number of elements per step of the axis, modulo `channels`, the axis's
length (the first axis has no modulo).
"""

FLAT = "flat"
"""Index by element number in the whole domain, for arrays of any shape with as many elements."""

Key: TypeAlias = "tuple[int, Index]"
"""A node and the index at which it is evaluated."""


class Refused(Exception):
    """Raised if a schedule does not support a graph; the message gives the reason in a sentence."""


class DifferentReductions(Refused):
    """Raised if a graph has reductions that no rows or columns have in common; the message names two of them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph with the domain of rows and columns over which it is evaluated.

    Attributes:
        domain: lengths of the axes, without those of length 1.
        split: the number of leading axes that are rows.
        outputs: the key at which each output is evaluated.
        gone: the axes that reductions remove.
        kind: `rows` if `gone` are the last axes (a single row if `split` is 0), `columns` if they are others, `map` if
            there are none; `free` if arrays may have any order of the axes, which the schedule handles itself.
        pitches: arrays whose rows are padded, with the distance from one row to the next in elements.
    """

    graph: Graph
    domain: tuple[str, ...]
    split: int
    outputs: tuple[Key, ...]
    kind: str
    gone: tuple[int, ...] = ()
    pitches: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)

    @property
    def row_count(self) -> str:
        """The number of rows, as an expression of the contract."""
        return product_text(self.domain[: self.split])

    @property
    def columns(self) -> str:
        """The number of elements in a row, as an expression of the contract."""
        return product_text(self.domain[self.split :])

    @property
    def reduced(self) -> list[int]:
        """The axes of a reduction's result."""
        return [axis for axis in range(len(self.domain)) if axis not in self.gone]

    def node(self, key: Key) -> Node:
        """Returns the node of a key."""
        return self.graph.nodes[key[0]]

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns the keys of an operation's operands; for a reduction, along its row."""
        return _operands(self.graph, key, self.domain)

    def access(self, key: Key) -> str:
        """Returns how the kernel accesses a leaf of the graph.

        The result is `flat` (by row and column), `row`, `part` (by some of the row axes, or of all if there are no rows), `column`, `once`, `@N` (by
        row, at the value of node N), `slab` (all columns, of a row selected by some row axes or by a value), or
        `across` (by one axis of another shape of the domain).
        """
        if any(str(one).startswith(f"{FLAT}/") for one in key[1]):
            if self.kind != "rows" or sum(one is not None for one in key[1]) > 1:
                raise Refused("it broadcasts arrays of which the shape was changed")
            return "across"
        if self.kind != "free" and any(str(one).startswith("#") for one in key[1]):
            raise Refused("it takes parts of arrays")
        if self.kind == "free":
            return "flat" if any(one is not None for one in key[1]) else "once"
        rows = [one for one in key[1] if one is not None]
        if self.kind == "columns":
            return "flat" if key[1] == (FLAT,) or {*rows} & {*self.gone} else "column" if rows else "once"
        if self.kind == "rows" and rows and all(isinstance(one, int) and one < self.split for one in rows):
            return "row" if rows == list(range(self.split)) else "part"
        if self.kind == "rows" and not self.split and self._is_part(rows):
            return "part"
        if self.kind == "rows" and self._is_slab(rows):
            return "slab"
        return _access(key[1], self.domain, self.split)

    def _is_part(self, index: Sequence[int | str]) -> bool:
        """Returns True for some axes of the domain, but not all, in their order."""
        axes = [one for one in index if isinstance(one, int)]
        return 0 < len(axes) == len(index) < len(self.domain) and axes == sorted(axes)

    def _is_slab(self, index: Sequence[int | str]) -> bool:
        """Returns True for all columns of a row that some row axes, or a value, select."""
        columns = [*range(self.split, len(self.domain))]
        front = index[: len(index) - len(columns)]
        whole = bool(columns) and [*index[len(front) :]] == columns and bool(front)
        some = all(isinstance(one, int) for one in front) and [*front] != [*range(self.split)]
        return whole and (some or (len(front) == 1 and str(front[0]).startswith("@")))


def plan_of(graph: Graph) -> Plan:
    """Returns the plan of a graph.

    Raises:
        Refused: the graph is neither a map nor operations on rows or columns.
    """
    reductions = [index for index, node in enumerate(graph.nodes) if node.op == "reduce"]
    _refuse_one_pass(graph)
    plan = _reducing(graph, reductions) if reductions else _map(graph)
    along = plan.reduced
    for key in walk(plan):
        node = plan.node(key)
        used = [one for one in key[1] if one is not None]
        if node.op == "reduce" and used != along and (_is_whole_reduction(plan, key) or not {*used} <= {*along}):
            raise Refused("it uses the results of reductions along other axes than their own")
        if node.op == "input":
            plan.access(key)
        if node.op == "iota" and plan.access(key) not in ("flat", "row", "part", "column", "once"):
            raise Refused("it uses positions along an axis that is merged with others")
        if node.op == "take" and plan.kind != "rows":
            raise Refused("it selects rows of an array by index")
        if node.op == "gather" and plan.kind != "rows":
            raise Refused("it gathers one element for each result")
    _refuse_reuse(plan)
    return plan


def _refuse_reuse(plan: Plan) -> None:
    """Checks that some array has all axes of the rows, since tiles serve reuse better, as in matrix products.

    Raises:
        Refused: none has.
    """
    keys = [*walk(plan)]
    met = [key for key in keys if plan.node(key).op == "input"]
    whole = any(_is_whole(key[1], plan.domain) or key[1] == (FLAT,) for key in [*met, *plan.outputs])
    slabs = any(plan.access(key) == "slab" and all(not isinstance(one, str) for one in key[1]) for key in met)
    parts = any(plan.node(key).op == "reduce" and not _is_whole_reduction(plan, key) for key in keys)
    if (slabs or parts) and not whole:
        raise Refused("it reads an array in another order than its own, or along some axes of many")


def free_plan(graph: Graph) -> Plan:
    """Returns the plan of a map, or of one reduction followed by a map, with any axis order of its arrays.

    The reduction removes the domain axes that its results do not have.

    Raises:
        Refused: the graph has several reductions, or outputs of different shapes.
    """
    graph = without_reshapes(graph)
    nodes = graph.nodes
    inner = {nodes[one.args[0]] for one in nodes if one.op == "reduce" and nodes[one.args[0]].op == "reduce"}
    roots = [index for index, one in enumerate(nodes) if one.op == "reduce" and one not in inner]
    if len(roots) > 1:
        raise Refused("it has several reductions along different axes")
    domain = long_sides(nodes[_operand(graph, roots[0])] if roots else nodes[graph.outputs[0]])
    gone = _reduced_axes(graph, roots[0]) if roots else []
    kept = [axis for axis in range(len(domain)) if axis not in gone]
    if any(long_sides(nodes[one]) != tuple(domain[axis] for axis in kept) for one in graph.outputs):
        raise Refused("its outputs have different shapes")
    outputs = []
    for one in graph.outputs:
        axes = iter(kept)
        outputs.append((one, tuple(None if side == "1" else next(axes) for side in nodes[one].shape)))
    plan = Plan(graph, domain, 0, tuple(outputs), "free")
    for key in walk(plan):
        if plan.node(key).op == "reduce" and [one for one in key[1] if one is not None] != kept:
            raise Refused("it uses the results of reductions along other axes than their own")
    return plan


def without_reshapes(graph: Graph) -> Graph:
    """Returns the graph without reshapes of inputs and results, which do not change memory."""
    nodes, outputs = list(graph.nodes), list(graph.outputs)
    for index, node in enumerate(nodes):
        if node.op == "reshape" and nodes[node.args[0]].op == "input":
            nodes[index] = replace(nodes[node.args[0]], shape=node.shape)
    while all(nodes[one].op == "reshape" for one in outputs):
        outputs = [nodes[one].args[0] for one in outputs]
    return pruned(nodes, outputs)


def reshapes_last(graph: Graph) -> Graph:
    """Returns the graph with reshapes moved after element-wise operations."""
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        sources = [nodes[one] for one in node.args if nodes[one].shape != ()]
        shapes = {nodes[one.args[0]].shape for one in sources if one.op == "reshape"}
        if node.op not in ("map", "cast") or len(shapes) != 1 or any(one.op != "reshape" for one in sources):
            continue
        if any(one.shape != node.shape for one in sources):
            continue
        args = tuple(nodes[one].args[0] if nodes[one].shape != () else one for one in node.args)
        nodes.append(replace(node, args=args, shape=shapes.pop()))
        nodes[index] = Node("reshape", (len(nodes) - 1,), node.shape, node.dtype)
    return sorted_graph(nodes, graph.outputs)


def walk(plan: Plan, unless: tuple[Key, Key] | None = None) -> Iterator[Key]:
    """Yields every key of a plan once, operands first; those reached only through the edge `unless` are left out."""
    seen: set[Key] = set()
    stack: list[tuple[Key, bool]] = [(key, False) for key in reversed(plan.outputs)]
    while stack:
        key, done = stack.pop()
        if done:
            yield key
        elif key not in seen:
            seen.add(key)
            stack.append((key, True))
            stack += [(one, False) for one in reversed(plan.operands(key)) if one not in seen and (key, one) != unless]


def behind(plan: Plan, key: Key) -> Key:
    """Returns the key of the operand below views and casts between floats."""
    node = plan.node(key)
    widened = node.op == "cast" and node.dtype in ("float32", "float64")
    if node.op == "view" or (widened and plan.graph.nodes[node.args[0]].dtype in ("float32", "float64")):
        return behind(plan, plan.operands(key)[0])
    return key


def _operands(graph: Graph, key: Key, domain: tuple[str, ...]) -> tuple[Key, ...]:
    node, index = graph.nodes[key[0]], key[1]
    match node.op:
        case "map" | "cast" | "scan":
            return tuple((arg, _aligned(graph.nodes[arg], node, index)) for arg in node.args)
        case "recur":
            axis = int(node.data[3] or 0)
            missing = [one for one in range(len(domain)) if one not in index]
            if index != (FLAT,) and node.data[2] == "last":
                index = (*index[:axis], missing[0], *index[axis + 1 :])
            return tuple((arg, _aligned(graph.nodes[arg], node, index)) for arg in node.args)
        case "view":
            return ((node.args[0], _viewed(graph.nodes[node.args[0]], node, index)),)
        case "reshape":
            if index == (FLAT,) or _is_whole(index, domain):
                before = graph.nodes[node.args[0]]
                return ((node.args[0], whole_index(before, domain) if long_sides(before) == domain else (FLAT,)),)
            raise Refused("it changes the shape of an array other than as a whole")
        case "reduce":
            root = _operand(graph, key[0])
            return ((root, _reduced_index(graph, key, domain, graph.nodes[root])),)
        case "take":
            source, chosen = node.args
            if index == (FLAT,):
                raise Refused("it changes the shape of elements selected by index")
            count = len(graph.nodes[chosen].shape)
            rest = zip(graph.nodes[source].shape[1:], index[count:], strict=True)
            behind = tuple(None if side == "1" else one for side, one in rest)
            return ((source, (f"@{chosen}", *behind)), (chosen, index[:count]))
        case "gather":
            source, chosen = node.args
            at = f"@{chosen}"
            return ((source, (*index, at)), (chosen, index))
        case "window":
            raise Refused("it takes parts of arrays, or joins them")
    return ()


def _reduced_index(graph: Graph, key: Key, domain: tuple[str, ...], root: Node) -> Index:
    """Returns the index of a reduction's operand: the domain, or the reduced axis and the result's axes."""
    if long_sides(root) == domain:
        return whole_index(root, domain)
    node, index = graph.nodes[key[0]], key[1]
    operand, axis = graph.nodes[node.args[0]], int(node.data[1] or 0)
    found = [place for place, side in enumerate(domain) if side == operand.shape[axis] and place not in index]
    if index == (FLAT,) or len(found) != 1 or len(index) + 1 != len(operand.shape):
        raise Refused("its reductions are along rows of different shapes")
    whole = (*index[:axis], found[0], *index[axis:])
    return tuple(None if side == "1" else one for side, one in zip(operand.shape, whole, strict=True))


def _aligned(arg: Node, node: Node, index: Index) -> Index:
    """Returns the index of an operand, by NumPy's broadcasting rules."""
    if index == (FLAT,):
        if arg.shape == node.shape:
            return index
        return _across(arg, node)
    behind = index[len(index) - len(arg.shape) :]
    return tuple(None if side == "1" else one for side, one in zip(arg.shape, behind, strict=True))


def _across(arg: Node, node: Node) -> Index:
    """Returns the index of an operand of lower rank if the node is indexed by element number."""
    sides = node.shape
    found: list[str | None] = []
    for axis, side in enumerate(arg.shape, len(sides) - len(arg.shape)):
        inner, within = product_text(sides[axis + 1 :]), "" if product_text(sides[:axis]) == "1" else f"%{side}"
        found.append(None if side == "1" else f"{FLAT}/{inner}{within}")
    return tuple(found)


def _viewed(source: Node, node: Node, index: Index) -> Index:
    if any(str(one).startswith(f"{FLAT}/") for one in index):
        places = {axis: place for place, axis in enumerate(node.data) if axis is not None}
        return tuple(None if side == "1" else index[places[axis]] for axis, side in enumerate(source.shape))
    if index == (FLAT,):
        if any(side.startswith("#") for side in source.shape):
            raise Refused("it changes the shape of a part of an array")
        kept = [int(axis) for axis in node.data if axis is not None and source.shape[int(axis)] != "1"]
        if kept != sorted(kept):
            raise Refused("it changes the shape of a transposed array")
        return index
    places = {axis: place for place, axis in enumerate(node.data) if axis is not None}
    sides = enumerate(source.shape)
    return tuple(None if side == "1" else side if side.startswith("#") else index[places[axis]] for axis, side in sides)


def _operand(graph: Graph, reduction: int) -> int:
    """Returns the operand of a chain of reductions of one kind."""
    node = graph.nodes[reduction]
    inner = graph.nodes[node.args[0]]
    if inner.op == "reduce" and inner.data[0] == node.data[0] and not str(node.data[0]).startswith("arg"):
        return _operand(graph, node.args[0])
    return node.args[0]


def whole_index(node: Node, domain: tuple[str, ...]) -> Index:
    """Returns the index of a node that has the whole domain."""
    if long_sides(node) != domain:
        raise Refused("its reductions are along rows of different shapes")
    axes = iter(range(len(domain)))
    return tuple(None if side == "1" else next(axes) for side in node.shape)


def _is_whole(index: Index, domain: tuple[str, ...]) -> bool:
    return [one for one in index if one is not None] == list(range(len(domain)))


def _access(index: Index, domain: tuple[str, ...], split: int) -> str:
    axes = [one for one in index if one is not None]
    every = list(range(len(domain)))
    if index == (FLAT,) or axes == every:
        return "flat" if domain else "once"
    if not axes:
        return "once"
    if axes == every[:split]:
        return "row"
    if axes == every[split:]:
        return "column"
    if axes[:-1] == every[:split] and str(axes[-1]).startswith("@"):
        return str(axes[-1])
    raise Refused("it reads an array in another order than its own, or along some axes of many")


def _map(graph: Graph) -> Plan:
    """Returns the plan of a graph without reductions."""
    shapes = {tuple(side for side in graph.nodes[one].shape if side != "1") for one in graph.outputs}
    if len(shapes) != 1:
        raise Refused("its outputs have different shapes")
    domain = shapes.pop()
    outputs = tuple((one, whole_index(graph.nodes[one], domain)) for one in graph.outputs)
    reason = Refused("")
    for split in range(len(domain) - 1, -1, -1):
        plan = Plan(graph, domain, split, outputs, "map")
        try:
            for key in walk(plan):
                if plan.node(key).op in ("input", "iota"):
                    plan.access(key)
                if plan.node(key).op == "iota" and plan.access(key) == "flat" and len(domain) > 1:
                    raise Refused("it uses positions along an axis that is merged with others")
        except Refused as error:
            reason = error
            continue
        accesses = {plan.access(key) for key in walk(plan) if plan.node(key).op in ("input", "iota")}
        return plan if accesses & {"row", "column"} else Plan(graph, domain, 0, outputs, "map")
    raise reason


def _reducing(graph: Graph, reductions: list[int]) -> Plan:
    """Returns the plan of reductions along rows or columns, and of the operations on their results."""
    inner = {graph.nodes[one].args[0] for one in reductions if _operand(graph, one) != graph.nodes[one].args[0]}
    roots = [one for one in reductions if one not in inner]
    longest = max(roots, key=lambda root: len(long_sides(graph.nodes[_operand(graph, root)])))
    domain, gone = long_sides(graph.nodes[_operand(graph, longest)]), _reduced_axes(graph, longest)
    split = len(domain) - len(gone)
    kind = "rows" if gone == list(range(split, len(domain))) else "columns"
    for root in roots:
        whole = long_sides(graph.nodes[_operand(graph, root)]) == domain and _reduced_axes(graph, root) == gone
        if not whole and not _is_part(graph, root, domain, gone):
            both = " and ".join(graph.reduction_text(one) for one in (longest, root))
            raise DifferentReductions(f"it reduces along different axes, or along rows of different shapes: {both}")
    plan = Plan(graph, domain, split, (), kind, tuple(gone))
    kept = tuple(domain[axis] for axis in plan.reduced)
    outputs: list[Key] = []
    for one in graph.outputs:
        shape = long_sides(graph.nodes[one])
        if shape not in (domain, kept):
            if product_text(shape) != product_text(domain) and not _reshaped(graph, one, domain):
                raise Refused("its outputs are neither as long as the rows nor one for each of them")
            outputs.append((one, (FLAT,)))
            continue
        axes = iter(plan.reduced if shape == kept else range(len(domain)))
        outputs.append((one, tuple(None if side == "1" else next(axes) for side in graph.nodes[one].shape)))
    return replace(plan, outputs=tuple(outputs))


def _is_part(graph: Graph, root: int, domain: Sequence[str], gone: Sequence[int]) -> bool:
    """Returns True for a reduction along the domain's reduced axis of an array that lacks some other axes."""
    node = graph.nodes[root]
    operand = graph.nodes[node.args[0]]
    sides, reduced = long_sides(operand), operand.shape[int(node.data[1] or 0)]
    one = len(gone) == 1 and operand.op != "reduce" and domain[gone[0]] == reduced and sides.count(reduced) == 1
    return one and len(sides) < len(domain) and len({*domain}) == len(domain) and {*sides} <= {*domain}


def _is_whole_reduction(plan: Plan, key: Key) -> bool:
    return long_sides(plan.graph.nodes[_operand(plan.graph, key[0])]) == plan.domain


def _reshaped(graph: Graph, output: int, domain: tuple[str, ...]) -> bool:
    """Returns True if an output has the domain's elements in another shape."""
    stack, seen = [output], {output}
    while stack:
        node = graph.nodes[stack.pop()]
        if node.op == "reshape" and long_sides(graph.nodes[node.args[0]]) == domain:
            return True
        alike = [arg for arg in node.args if node.op == "reshape" or graph.nodes[arg].shape == node.shape]
        if node.op in ("map", "cast", "reshape"):
            stack += [arg for arg in alike if arg not in seen]
            seen.update(alike)
    return False


def long_sides(node: Node) -> tuple[str, ...]:
    """Returns the lengths of a node's axes that are not 1."""
    return tuple(side for side in node.shape if side != "1")


def _reduced_axes(graph: Graph, reduction: int) -> list[int]:
    """Returns the axes that a chain of reductions removes, among its operand's axes longer than 1, in order."""
    chain = [graph.nodes[reduction]]
    while chain[-1].args[0] != _operand(graph, reduction):
        chain.append(graph.nodes[chain[-1].args[0]])
    sides = graph.nodes[_operand(graph, reduction)].shape
    left = list(range(len(sides)))
    gone = {left.pop(int(node.data[1] or 0)) for node in reversed(chain)}
    long = [axis for axis, side in enumerate(sides) if side != "1"]
    return [place for place, axis in enumerate(long) if axis in gone]


def _refuse_one_pass(graph: Graph) -> None:
    """Checks that no variance is the mean of squares minus the squared mean, which cancels for data with an offset.

    Raises:
        Refused: there is one.
    """

    def mean_of(index: int) -> int | None:
        node = graph.nodes[index]
        if node.op == "view":
            return mean_of(node.args[0])
        if node.op != "map" or node.data[0] not in ("divide", "multiply"):
            return None
        inner = [graph.nodes[arg] for arg in node.args]
        return next(
            (graph.nodes[i].args[0] for i, one in zip(node.args, inner, strict=True) if one.op == "reduce"), None
        )

    def squared(index: int | None) -> bool:
        node = None if index is None else graph.nodes[index]
        if node is None or node.op != "map":
            return False
        return node.data[0] == "square" or (node.data[0] == "multiply" and node.args[0] == node.args[1])

    for node in graph.nodes:
        if node.op == "map" and node.data[0] == "subtract":
            first, second = node.args
            if squared(mean_of(first)) and squared(second) and mean_of(graph.nodes[second].args[0]) is not None:
                raise Refused("its variance is the mean of squares less the square of the mean, which loses digits")
