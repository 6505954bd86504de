"""Plan of attention: softmax over keys of query-key products (or of given scores), then weighted sums of values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kernelmate.records import Contract
from kernelmate.source import evaluate
from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap
from kernelmate.synthesis.plan import Index, Key, Plan, Refused, without_reshapes
from kernelmate.synthesis.sizes import joined


class AxisPosition(NamedTuple):
    """A position along an axis of an array: a sum of positions along domain axes, each times a size expression."""

    terms: tuple[tuple[int, str], ...]
    offset: str = "0"

    def times(self, factor: str) -> AxisPosition:
        """Returns the position times a factor."""
        return AxisPosition(
            tuple((axis, joined(factor, "*", one)) for axis, one in self.terms), _scaled(self.offset, factor)
        )

    def plus(self, other: AxisPosition) -> AxisPosition:
        """Returns the sum of two positions."""
        return AxisPosition(self.terms + other.terms, joined(self.offset, "+", other.offset))


def _scaled(text: str, factor: str) -> str:
    return "0" if text == "0" else joined(factor, "*", text)


@dataclass(frozen=True, slots=True)
class Attention(Plan):
    """A graph whose nodes are indexed by three groups of axes.

    The first group has the axes of its result, the second the axis of the keys, and the third the axis over which
    query-key products are summed. An index has an `AxisPosition` for each axis of a node, or None for an axis of length
    1.

    Attributes:
        contract: the contract of the sizes.
        along: the axis of the domain that each reduction runs along.
        total: the weighted sum of values; `values` are the factors other than the weights.
        largest, summed: maximum and sum of the softmax.
        score: the argument of the softmax.
        normalised: True if weights are divided by their sum before the weighted sum.
        product: the product of queries and keys; None if the scores are given.
        left, right: the factors of that product; `right` has those with the keys' axis.
        query: the axis along which a block may take several queries; None if there is none.
        column: the axis that only the values have.
    """

    contract: Contract | None = None
    along: Mapping[int, int] = field(default_factory=dict)
    total: Key = (0, ())
    values: tuple[Key, ...] = ()
    largest: Key = (0, ())
    summed: Key = (0, ())
    score: Key = (0, ())
    normalised: bool = True
    product: Key | None = None
    left: tuple[Key, ...] = ()
    right: tuple[Key, ...] = ()
    query: int | None = None
    column: int = -1

    @property
    def key(self) -> int:
        """The number of the keys' axis."""
        return len(self.domain) - 2

    @property
    def depth(self) -> int:
        """The index in `domain` of the axis over which query-key products are summed."""
        return len(self.domain) - 1

    @property
    def batch(self) -> list[int]:
        """The axes of the result along which a block has a single position."""
        return [axis for axis in range(self.key) if axis not in (self.query, self.column)]

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns the operands of an operation, each with its index."""
        return _operands(self, key)

    def access(self, key: Key) -> str:
        """Returns `flat` for values that differ within a block; otherwise `once`."""
        return "flat" if axes_of(key) - {*self.batch} else "once"

    def leaves(self, roots: Sequence[Key]) -> Iterator[Key]:
        """Yields the arrays and position nodes that some values depend on without reductions, each once."""
        stack, seen = list(roots), set[Key]()
        while stack:
            key = stack.pop()
            if key in seen or self.node(key).op == "reduce":
                continue
            seen.add(key)
            if self.node(key).op in ("input", "iota"):
                yield key
            stack += self.operands(key)

    def steps(self, key: Key) -> AxisPosition:
        """Returns the offset of a node's element as a sum of positions along domain axes times strides."""
        found = AxisPosition(())
        stride = "1"
        for one, side in reversed(list(zip(key[1], self.node(key).shape, strict=True))):
            if one is not None:
                found = found.plus(_place(one).times(stride))
            stride = self._widened(stride, side)
        return found

    def _widened(self, stride: str, side: str) -> str:
        """Returns a stride times an extent; `(C // H) * H` becomes `C` if the reference splits an axis of `C`."""
        args = self.contract.args if self.contract else ()
        if stride.endswith(f" // {side})") and not any("//" in one for arg in args for one in arg.shape or ()):
            return stride[1 : -len(f" // {side})")]
        return joined(stride, "*", side)


def _place(one: Any) -> AxisPosition:
    return one if isinstance(one, AxisPosition) else AxisPosition(((int(one), "1"),))


def axes_of(key: Key) -> set[int]:
    """Returns the axes of the domain that an index contains."""
    places: tuple[Any, ...] = key[1]
    return {axis for one in places if isinstance(one, AxisPosition) for axis, _ in one.terms}


def _operands(plan: Attention, key: Key) -> tuple[Key, ...]:
    graph = plan.graph
    node, index = graph.nodes[key[0]], key[1]
    source = graph.nodes[node.args[0]] if node.args else node
    match node.op:
        case "map" | "cast":
            return tuple((one, _kept(graph.nodes[one], index[-len(graph.nodes[one].shape) or len(index) :])) for one in node.args)  # fmt: skip
        case "view":
            places = {axis: place for place, axis in enumerate(node.data) if axis is not None}
            sides = enumerate(source.shape)
            return ((node.args[0], tuple(None if side == "1" else index[places[axis]] for axis, side in sides)),)
        case "reduce":
            axis = int(node.data[1] or 0)
            moved: Any = AxisPosition(((plan.along[key[0]], "1"),))
            return ((node.args[0], _kept(source, (*index[:axis], moved, *index[axis:]))),)
        case "window":
            return ((node.args[0], _kept(source, _parts(node, index))),)
        case "reshape":
            return ((node.args[0], _reshaped(plan.contract, source, node, index)),)
        case "input" | "scalar" | "size" | "constant" | "iota":
            return ()
    raise Refused(f"it computes attention, and another operation besides ({node.op})")


def _kept(node: Node, index: Index) -> Index:
    return tuple(None if side == "1" else one for side, one in zip(node.shape, index, strict=True))


def _parts(node: Node, index: Index) -> Any:
    """Returns the index in the source for an element of a slice.

    Raises:
        Refused: the array is padded or joined.
    """
    found = []
    for entry in node.data:
        axis = AxisMap.of(entry)
        if axis.beyond != ORDINARY or axis.every != 1 or len(node.args) > 1:
            raise Refused("it computes attention of padded or joined arrays")
        place = AxisPosition((), axis.offset)
        for number, step in axis.terms:
            if index[number] is not None:
                place = place.plus(_place(index[number]).times(str(step)))
        found.append(place)
    return tuple(found)


def _reshaped(contract: Contract | None, source: Node, node: Node, index: Index) -> Any:
    """Returns the index in the source for an element of a reshaped array with split axes."""
    assert contract is not None
    headline = contract.sizes[0]
    pairs = [(one, side) for one, side in zip(index, node.shape, strict=True) if side != "1"]
    found: list[Any] = []
    for side in source.shape:
        place, whole = AxisPosition(()), "1"
        while side != "1" and pairs and evaluate(whole, headline) < evaluate(side, headline):
            one, inner = pairs.pop(0)
            place, whole = place.times(inner).plus(_place(one)), joined(whole, "*", inner)
        if any(evaluate(whole, size) != evaluate(side, size) for size in contract.sizes):
            raise Refused("it computes attention of arrays whose axes it merges")
        found.append(None if side == "1" else place)
    if pairs:
        raise Refused("it computes attention of arrays whose axes it merges")
    return tuple(found)


def attention_of(graph: Graph, contract: Contract) -> Attention | None:
    """Returns the plan of a graph; None if it is not attention, or has operations that other schedules may support."""
    graph = without_reshapes(graph)
    nodes = graph.nodes
    kinds = [node.data[0] for node in nodes if node.op == "reduce"]
    if "max" not in kinds or kinds.count("sum") < 2 or not any(node.mapped == "exp" for node in nodes):
        return None
    for output in graph.outputs:
        try:
            found = _recognised(_laid_out(graph, contract, output))
            found = None if found is None else _with_axes(found)
            if found is not None:
                return replace(found, outputs=tuple(_output(found, one) for one in graph.outputs))
        except Refused:
            continue
    return None


def _laid_out(graph: Graph, contract: Contract, output: int) -> Attention:
    """Returns a plan over the axes of an output; the extents of the key and depth axes are not known yet."""
    sides = [side for side in graph.nodes[output].shape if side != "1"]
    axes = iter(range(len(sides)))
    index: Any = tuple(
        None if side == "1" else AxisPosition(((next(axes), "1"),)) for side in graph.nodes[output].shape
    )
    return Attention(graph, (*sides, "", ""), 0, ((output, index),), "free", contract=contract)


def _recognised(plan: Attention) -> Attention | None:
    """Returns the plan with the role of each node; None if its output contains no attention."""
    stack, seen = list(plan.outputs), set[Key]()
    while stack:
        key = stack.pop()
        if key in seen:
            continue
        seen.add(key)
        if plan.node(key).op == "reduce":
            found = _total(plan, key)
            if found is not None:
                return found
            continue
        stack += plan.operands(key)
    return None


def _total(plan: Attention, key: Key) -> Attention | None:
    """Interprets a reduction as the weighted sum of values; None if it is not one."""
    if plan.node(key).data[0] != "sum":
        return None
    plan = _taking(plan, key, plan.key)
    factors = list(_factors(plan, plan.operands(key)[0]))
    for place, factor in enumerate(factors):
        found = _softmax(plan, factor)
        values = tuple(factors[:place] + factors[place + 1 :])
        if found is not None and values:
            return replace(found, total=key, values=values)
    return None


def _taken(plan: Attention, key: Key) -> str:
    """Returns the extent of the axis that a reduction removes."""
    node = plan.node(key)
    return plan.graph.nodes[node.args[0]].shape[int(node.data[1] or 0)]


def _taking(plan: Attention, key: Key, axis: int) -> Attention:
    """Returns the plan with the extent of an axis set to that of the axis that a reduction removes."""
    domain = tuple(_taken(plan, key) if place == axis and not old else old for place, old in enumerate(plan.domain))
    return replace(plan, along={**plan.along, key[0]: axis}, domain=domain)


def bare(plan: Attention, key: Key) -> Key:
    """Returns the key of the operand of any views and casts between floats."""
    node = plan.node(key)
    floats = node.op == "cast" and {node.dtype, plan.graph.nodes[node.args[0]].dtype} <= {"float32", "float64"}
    if node.op in ("view", "reshape", "window") or floats:
        return bare(plan, plan.operands(key)[0])
    return key


def _factors(plan: Attention, key: Key) -> Iterator[Key]:
    """Yields the factors of a product."""
    key = bare(plan, key)
    if plan.node(key).op == "map" and plan.node(key).data[0] == "multiply":
        for one in plan.operands(key):
            yield from _factors(plan, one)
    else:
        yield key


def _mapped(plan: Attention, key: Key, name: str) -> list[Key]:
    """Returns the operands of a `map` node with this name; an empty list for other nodes."""
    node = plan.node(key)
    return [bare(plan, one) for one in plan.operands(key)] if node.op == "map" and node.data[0] == name else []


def _softmax(plan: Attention, key: Key) -> Attention | None:
    """Interprets a factor as exponentials of scores minus their maximum, possibly divided by their sum; else None."""
    quotient = _mapped(plan, key, "divide")
    exponential = quotient[0] if quotient else key
    for exponent in _mapped(plan, exponential, "exp"):
        difference = _mapped(plan, exponent, "subtract")
        if not difference or plan.node(difference[1]).data[:1] != ("max",) or plan.node(difference[1]).op != "reduce":
            continue
        score, largest = difference
        plan = _taking(plan, largest, plan.key)
        summed = quotient[1] if quotient else _sum_of(plan, exponential)
        if plan.node(summed).data[:1] != ("sum",) or plan.node(summed).op != "reduce":
            return None
        plan = _taking(plan, summed, plan.key)
        if {_taken(plan, one) for one in (largest, summed)} != {plan.domain[plan.key]}:
            return None
        same = bare(plan, plan.operands(largest)[0]) == score and bare(plan, plan.operands(summed)[0]) == exponential
        return _product(replace(plan, score=score, largest=largest, summed=summed, normalised=bool(quotient))) if same else None  # fmt: skip
    return None


def _sum_of(plan: Attention, exponential: Key) -> Key:
    """Returns the sum of the exponentials, by which results are divided at the end."""
    keys: Any = AxisPosition(((plan.key, "1"),))
    if keys not in exponential[1]:
        return exponential
    place = exponential[1].index(keys)
    for number, node in enumerate(plan.graph.nodes):
        if node.op == "reduce" and node.args == (exponential[0],) and node.data == ("sum", place):
            return number, exponential[1][:place] + exponential[1][place + 1 :]
    return exponential


def _product(plan: Attention) -> Attention:
    """Returns the plan with the query-key product that its scores depend on, if there is one."""
    stack, seen, found = [plan.score], set[Key](), set[Key]()
    while stack:
        key = stack.pop()
        if key in seen:
            continue
        seen.add(key)
        if plan.node(key).op == "reduce":
            found.add(key)
        else:
            stack += plan.operands(key)
    if not found:
        return plan
    (product, *others) = found
    if others or plan.node(product).data[0] != "sum" or not plan.node(product).dtype.startswith("float"):
        raise Refused("its scores are of several reductions, or of whole numbers")
    plan = _taking(plan, product, plan.depth)
    factors = list(_factors(plan, plan.operands(product)[0]))
    sides: tuple[list[Key], list[Key]] = ([], [])
    for factor in factors:
        sides[any(plan.key in axes_of(one) for one in plan.leaves([factor]))].append(factor)
    if not all(sides):
        raise Refused("its scores are sums of other products than of queries and keys")
    return replace(plan, product=product, left=tuple(sides[0]), right=tuple(sides[1]))


def _output(plan: Attention, output: int) -> Key:
    """Returns the key at which an output is evaluated: the axes for which it needs only this plan's reductions."""
    shape = plan.graph.nodes[output].shape
    known = {plan.total, plan.largest, plan.summed}
    long = [side for side in shape if side != "1"]
    for axes in itertools.permutations(range(plan.key), len(long)):
        if [plan.domain[axis] for axis in axes] != long:
            continue
        rest = iter(axes)
        index: Any = tuple(None if side == "1" else AxisPosition(((next(rest), "1"),)) for side in shape)
        if _reductions(plan, (output, index)) <= known:
            return output, index
    raise Refused("its outputs need other reductions than those of attention")


def _reductions(plan: Attention, root: Key) -> set[Key]:
    stack, seen = [root], set[Key]()
    while stack:
        key = stack.pop()
        if key not in seen:
            seen.add(key)
            stack += () if plan.node(key).op == "reduce" else plan.operands(key)
    return {key for key in seen if plan.node(key).op == "reduce"}


def _with_axes(plan: Attention) -> Attention | None:
    """Returns the plan with the query axis and the axis that only the values have.

    A block may take several positions along the query axis. The result is None if values are not vectors.
    """
    scores = {axis for key in plan.leaves([plan.score, *plan.left, *plan.right]) for axis in axes_of(key)}
    keys = {axis for key in plan.leaves([*plan.right, *plan.values]) for axis in axes_of(key)}
    values = {axis for key in plan.leaves(plan.values) for axis in axes_of(key)}
    columns = [axis for axis in range(plan.key) if axis in values - scores]
    if not columns or plan.key not in values:
        return None
    size = plan.contract.sizes[0] if plan.contract else {}
    queries = [axis for axis in range(plan.key) if axis not in keys]
    query = max(queries, key=lambda axis: (evaluate(plan.domain[axis], size), axis), default=None)
    return replace(plan, query=query, column=columns[-1])


def by_axis(place: AxisPosition) -> dict[int, str]:
    """Returns the stride of a position along each axis."""
    found: dict[int, str] = {}
    for axis, factor in place.terms:
        found[axis] = joined(found[axis], "+", factor) if axis in found else factor
    return found
