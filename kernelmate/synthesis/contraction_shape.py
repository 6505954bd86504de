"""Axes of a sum over products of two arrays: rows, columns, what is summed over, and batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.synthesis.axes import Axes, Order, order_of
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.plan import Key, Plan, Refused, walk

_KEEPS_ZERO = frozenset({"negative", "absolute", "square", "sqrt", "tanh", "sin", "expm1", "log1p"})


class ContractionShape:
    """Which axes are the results', and which are summed over.

    Attributes:
        m: the axis of the first operand alone. n: of the second. k: of both, which the results do not have. batch: of all.
        root: what is summed. left: arrays with `m`, right: with `n`, by their orders. rest: orders of what the results need besides.
    """

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        self.plan = plan
        self.reduction = next(key for key in walk(plan) if plan.node(key).op == "reduce")
        (self.root,) = plan.operands(self.reduction)
        kept = order_of(plan.outputs[0][1])
        inside = self._orders([self.root])
        outside = self._orders(plan.outputs)
        self.axes = Axes.merged(plan.domain, [kept, *inside.values(), *outside.values()])
        merged = {name: self.axes.order(order) for name, order in inside.items()}
        self.rest = {name: self.axes.order(order) for name, order in outside.items()}
        self.whole = [axis for axis in self.axes.order(kept) if isinstance(axis, int)]
        if plan.node(self.reduction).data[0] != "sum" or not merged:
            raise Refused("it reduces a product of arrays other than by a sum")
        self.batch = [axis for axis in self.whole if all(axis in order for order in merged.values())]
        summed = [axis for axis in range(len(self.axes.sides)) if axis not in self.whole]
        single = [axis for axis in self.whole if axis not in self.batch]
        if len(summed) != 1 or len(single) != 2 or any(summed[0] not in order for order in merged.values()):
            raise Refused("it sums products over other axes than a matrix product does")
        self.m, self.n, self.k = *single, summed[0]
        self.left = {name: order for name, order in merged.items() if self.n not in order}
        self.right = {name: order for name, order in merged.items() if self.m not in order}
        if not self.left or not self.right or {*self.left, *self.right} != {*merged} or {*self.left} & {*self.right}:
            raise Refused("it sums products of arrays that have all axes, or only one")
        outputs = {one.name for one in kernel.outputs()}
        if outputs & {*merged} or any(
            name in outputs and order != tuple(self.whole) for name, order in self.rest.items()
        ):
            raise Refused("an array is read where another thread may have written it")

    @property
    def outermost(self) -> int | None:
        """The batch axis that is the first of every array, whose length no address needs."""
        orders = [tuple(self.whole), *self.left.values(), *self.right.values(), *self.rest.values()]
        first = self.whole[0]
        return first if first in self.batch and all(first not in order[1:] for order in orders) else None

    def is_summed(self, key: Key) -> bool:
        """Whether a value differs along the sum's axis."""
        return any(self.k in self.axes.order(order) for order in self._orders([key]).values())

    def _orders(self, roots: Sequence[Key]) -> dict[str, Order]:
        """The arrays that some values need without the reduction, and how they are met."""
        found: dict[str, Order] = {}
        stack, seen = list(roots), set[Key]()
        while stack:
            key = stack.pop()
            node = self.plan.node(key)
            if node.op == "reduce" or key in seen:
                continue
            seen.add(key)
            if node.op in ("iota", "take"):
                raise Refused("it uses positions or rows by their numbers beside a matrix product")
            if node.op == "input":
                name, order = str(node.data[0]), order_of(key[1])
                if found.setdefault(name, order) != order:
                    raise Refused(f"it meets {name} along different axes")
            stack += self.plan.operands(key)
        return found


def vanishes(expressions: Expressions, key: Key) -> bool:
    """Whether a value is zero where all arrays are, as they are made to be behind the end of the sum."""
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
    return all(zeros) and (node.data[0] in _KEEPS_ZERO or node.data[0] in ("add", "subtract", "maximum", "minimum"))


@dataclass(frozen=True, slots=True)
class Factors:
    """A sum of plain products: one array of each side, and what is the same for all terms of a sum.

    Attributes:
        left: the array with rows. right: the array with columns. outside: factors without the sum's axis.
    """

    left: str
    right: str
    outside: tuple[Key, ...]

    @staticmethod
    def of(shape: ContractionShape) -> Factors:
        """The factors of what is summed.

        Raises:
            Refused: it is something else than a product of two arrays, or computes in other types than the sum's.
        """
        plan, found, outside = shape.plan, list[str](), list[Key]()
        total = plan.node(shape.reduction).dtype
        stack = [shape.root]
        while stack:
            key = stack.pop()
            node = plan.node(key)
            if not shape.is_summed(key):
                outside.append(key)
            elif node.op == "input":
                found.append(str(node.data[0]))
            elif node.op in ("view", "cast") or (node.op == "map" and node.data[0] == "multiply"):
                if node.op != "view" and node.dtype != total and not {node.dtype, total} <= {"float32", "float64"}:
                    raise Refused(f"it computes products in {node.dtype}")
                stack += plan.operands(key)
            else:
                raise Refused("it sums something else than products of elements")
        left, right = ([one for one in found if one in side] for side in (shape.left, shape.right))
        if len(left) != 1 or len(right) != 1 or len(found) != 2:
            raise Refused("it sums products of more than two arrays")
        return Factors(left[0], right[0], tuple(reversed(outside)))
