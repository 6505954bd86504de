"""Axes of a contraction (a sum of products of two arrays): rows, columns, summation axis, and batch axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from kernelmate.records import Size
from kernelmate.source import evaluate
from kernelmate.synthesis.axes import Axes, Order, order_of
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.plan import Key, Plan, Refused, walk

_KEEPS_ZERO = frozenset(
    {
        "negative", "absolute", "square", "sqrt", "tanh", "sin", "expm1", "log1p", "bitwise_count",
        "add", "subtract", "maximum", "minimum", "bitwise_xor", "bitwise_or", "bitwise_and",
    }
)  # fmt: skip
"""Operations whose result is zero if all operands are zero."""


LARGEST_TILE = 128
"""Maximum side of a block's tile; elements of longer axes are not reused more often."""


class ContractionShape:
    """Roles of axes: those of the results, and the summation axis of all sums.

    Attributes:
        m: the axis that only the first operand has.
        n: the axis that only the second operand has.
        k: the summation axis, which both operands have.
        batch: the results' other axes; an operand that lacks one of them is broadcast along it.
        reductions: the sums.
        roots: the summed values.
        reduction, root: the first of each.
        left: axis orders of the summed arrays with `m`.
        right: axis orders of those with `n`.
        rest: axis orders of further arrays that the results depend on.
        beside: those of `rest` that are factors of all terms of a sum.
    """

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        self.plan = plan
        self.reductions = [key for key in walk(plan) if plan.node(key).op == "reduce"]
        if not self.reductions:
            raise Refused("it has no sum")
        self.roots = [plan.operands(key)[0] for key in self.reductions]
        self.reduction, self.root = self.reductions[0], self.roots[0]
        kept = order_of(plan.outputs[0][1])
        inside = self._orders(self.roots)
        outside = self._orders(plan.outputs)
        orders = [kept, *inside.values(), *outside.values(), *self._positions(plan.outputs)]
        self.axes = Axes.merged(plan.domain, orders)
        merged = {name: self.axes.order(order) for name, order in inside.items()}
        self.rest = {name: self.axes.order(order) for name, order in outside.items()}
        self.whole = [axis for axis in self.axes.order(kept) if isinstance(axis, int)]
        if any(plan.node(key).data[0] != "sum" for key in self.reductions) or not merged:
            raise Refused("it reduces a product of arrays other than by a sum")
        summed = [axis for axis in range(len(self.axes.sides)) if axis not in self.whole]
        terms = {name: merged[name] for name in kernel.arguments if {*merged.get(name, ())} & {*summed}}
        self.batch = [axis for axis in self.whole if terms and all(axis in order for order in terms.values())]
        single = [axis for axis in self.whole if axis not in self.batch]
        if len(single) > 2:
            single = self._tiled_axes(single, terms, kernel.contract.sizes[0])
            self.batch = [axis for axis in self.whole if axis not in single]
        if len(summed) != 1 or len(single) != 2:
            raise Refused("it sums products over other axes than a matrix product does")
        self.m, self.n, self.k = *single, summed[0]
        self.left = {name: order for name, order in terms.items() if self.n not in order}
        self.right = {name: order for name, order in terms.items() if self.m not in order}
        self.beside = {name: order for name, order in merged.items() if name not in terms}
        if any(self.rest.get(name, order) != order for name, order in self.beside.items()):
            raise Refused("it reads a factor of a product along other axes elsewhere")
        self.rest |= self.beside
        if not self.left or not self.right or {*self.left, *self.right} != {*terms} or {*self.left} & {*self.right}:
            raise Refused("it sums products of arrays that have all axes, or only one")
        outputs = {one.name for one in kernel.outputs()}
        if outputs & {*merged} or any(
            name in outputs and order != tuple(self.whole) for name, order in self.rest.items()
        ):
            raise Refused("an array is read where another thread may have written it")

    def _tiled_axes(self, single: Sequence[int], terms: Mapping[str, Order], size: Size) -> list[int]:
        """Returns the pair of axes, one per operand, whose tiles reuse most; the last axis comes first in ties."""
        arrays = {axis: {name for name, order in terms.items() if axis in order} for axis in single}
        reused = {axis: min(int(evaluate(self.axes.sides[axis], size)), LARGEST_TILE) for axis in single}
        pairs = [(m, n) for m, n in combinations(single, 2) if arrays[m] and arrays[n] and not arrays[m] & arrays[n]]

        def rank(pair: tuple[int, int]) -> tuple[float, bool]:
            harmonic = reused[pair[0]] * reused[pair[1]] / (reused[pair[0]] + reused[pair[1]] or 1)
            return harmonic, pair[1] == self.whole[-1]

        return [*max(pairs, key=rank)] if pairs else []

    @property
    def outermost(self) -> int | None:
        """Returns the batch axis that is first in every array, whose extent no address needs."""
        orders = [tuple(self.whole), *self.left.values(), *self.right.values(), *self.rest.values()]
        first = self.whole[0]
        return first if first in self.batch and all(first not in order[1:] for order in orders) else None

    def is_summed(self, key: Key) -> bool:
        """Returns True if a value varies along the summation axis."""
        return self.k in self.along(key)

    def along(self, key: Key) -> set[int | str]:
        """Returns the axes along which a value varies."""
        return {axis for order in self._orders([key]).values() for axis in self.axes.order(order)}

    def _without_reduction(self, roots: Sequence[Key]) -> Iterator[Key]:
        """Yields all values that some values depend on, without reductions and their operands."""
        stack, seen = list(roots), set[Key]()
        while stack:
            key = stack.pop()
            if self.plan.node(key).op == "reduce" or key in seen:
                continue
            seen.add(key)
            yield key
            stack += self.plan.operands(key)

    def _positions(self, roots: Sequence[Key]) -> list[Order]:
        """Returns the axes along which values use positions; these axes are not merged."""
        return [order_of(key[1]) for key in self._without_reduction(roots) if self.plan.node(key).op == "iota"]

    def _orders(self, roots: Sequence[Key]) -> dict[str, Order]:
        """Returns the arrays that some values depend on without the reduction, with the orders of their axes."""
        found: dict[str, Order] = {}
        for key in self._without_reduction(roots):
            node = self.plan.node(key)
            if node.op == "take" or (node.op == "iota" and {*self.roots} & {*roots}):
                raise Refused("it uses positions, or rows selected by index, in the terms of a matrix product")
            if node.op == "input":
                name, order = str(node.data[0]), order_of(key[1])
                if found.setdefault(name, order) != order:
                    raise Refused(f"it reads {name} along different axes")
        return found

    def position(self, key: Key) -> int:
        """Returns the axis of a position node."""
        (axis,) = self.axes.order(order_of(key[1]))
        return int(axis)


def vanishes(expressions: Expressions, key: Key) -> bool:
    """Returns True if a value is zero when all arrays are zero, as padding beyond the end of the sum makes them."""
    node, args = expressions.plan.node(key), expressions.plan.operands(key)
    if node.op in ("input", "constant"):
        return node.op == "input" or node.data[0] == 0
    if node.op in ("view", "cast"):
        return vanishes(expressions, args[0])
    if node.op != "map":
        return False
    zeros = [vanishes(expressions, one) for one in args]
    if node.data[0] == "multiply":
        return any(zeros)
    if node.data[0] == "divide":
        return zeros[0] and not expressions.varies(args[1])
    return all(zeros) and node.data[0] in _KEEPS_ZERO


@dataclass(frozen=True, slots=True)
class Factors:
    """A sum of plain products: one array of each side, and factors common to all terms.

    Attributes:
        left: the array with rows.
        right: the array with columns.
        terms: the keys of both arrays.
        outside: factors that do not vary along the summation axis.
    """

    left: str
    right: str
    terms: tuple[Key, ...]
    outside: tuple[Key, ...]

    @staticmethod
    def of(shape: ContractionShape, number: int = 0) -> Factors:
        """Returns the factors of a sum's terms; of the first sum by default.

        Raises:
            Refused: a term is not a product of two arrays, or has another dtype than the sum.
        """
        plan, found, outside = shape.plan, list[Key](), list[Key]()
        total = plan.node(shape.reductions[number]).dtype
        stack = [shape.roots[number]]
        while stack:
            key = stack.pop()
            node = plan.node(key)
            if not shape.is_summed(key):
                outside.append(key)
            elif node.op == "input":
                found.append(key)
            elif node.op in ("view", "cast") or (node.op == "map" and node.data[0] == "multiply"):
                if node.op != "view" and node.dtype != total and not {node.dtype, total} <= {"float32", "float64"}:
                    raise Refused(f"it computes products in {node.dtype}")
                stack += plan.operands(key)
            else:
                raise Refused("it sums something else than products of elements")
        names = [str(plan.node(key).data[0]) for key in found]
        left, right = ([one for one in names if one in side] for side in (shape.left, shape.right))
        if len(left) != 1 or len(right) != 1 or len(found) != 2:
            raise Refused("it sums products of more than two arrays")
        return Factors(left[0], right[0], tuple(found), tuple(reversed(outside)))
