"""Maps over arrays with any order of axes: the index of each array's element."""

from __future__ import annotations

from kernelmate.synthesis.axes import Axes, Order, order_of
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.names import position_name, singular
from kernelmate.synthesis.plan import Key, Plan, Refused, walk


class FreeMap:
    """A map over merged axes, with the index of each array.

    Attributes:
        orders: axes of each array that is read.
        positions: axes of each position.
        whole: axes of the results.
        skips_first: whether the length of the first axis is not needed, since the grid has it.
    """

    skips_first = False

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        self.plan, self.kernel = plan, kernel
        self.outputs = [one.name for one in kernel.outputs()]
        raw: dict[str, Order] = {}
        every = tuple(range(len(plan.domain)))
        for key in walk(plan):
            node = plan.node(key)
            if node.op == "input":
                name = str(node.data[0])
                if raw.setdefault(name, order_of(key[1])) != order_of(key[1]):
                    raise Refused(f"it reads {name} along different axes")
                if name in self.outputs and raw[name] != every:
                    raise Refused(f"{name} is read where another thread may have written it")
        positions = [order_of(key[1]) for key in walk(plan) if plan.node(key).op == "iota"]
        self.axes = Axes.merged(plan.domain, [every, *raw.values(), *positions])
        self.positions = [self.axes.order(order) for order in positions]
        self.orders = {name: self.axes.order(order) for name, order in raw.items()}
        self.whole = tuple(range(len(self.axes.sides)))
        self.opening: list[str] = []
        skipped = 0 if self.skips_first else None
        if self.skips_first and any(0 in order[1:] for order in self.orders.values()):
            raise Refused("it needs the number of rows for addresses")
        self.lengths = self.axes.lengths(kernel, {}, self.opening, skipped)
        self.expressions = Expressions(plan, kernel, self.leaf, frozenset({"flat"}))

    def leaf(self, key: Key) -> str:
        """Returns the text of an array's element, a scalar or a position."""
        node = self.plan.node(key)
        if node.op == "scalar":
            return self.kernel.loaded(str(node.data[0]), str(node.data[0]))
        if node.op == "iota":
            order = self.axes.order(order_of(key[1]))
            return self.position(order[0]) if order else "0"
        return self.kernel.loaded(str(node.data[0]), self.element(str(node.data[0])))

    def known(self) -> list[str]:
        """Returns the arrays that are read completely; for gathered rows, the traffic is unknown."""
        return [name for name, order in self.orders.items() if not any(isinstance(axis, str) for axis in order)]

    def called(self, axis: int) -> str:
        """Returns the name of a position along an axis: the singular of its length's name, or its first letter."""
        side = self.axes.sides[axis]
        short = position_name(side)
        return singular(side, side[0] if side.isalpha() and self.kernel.names.is_free(side[0]) else short)

    def position(self, axis: int | str) -> str:
        """Returns the text of the position along an axis."""
        raise NotImplementedError

    def element(self, name: str) -> str:
        """Returns the text of an element of an array that is read."""
        raise NotImplementedError

    def values(self, lines: list[str]) -> list[str]:
        """Returns the values stored in each output; locals go to `lines`."""
        texts = self.expressions.locals_for(self.plan.outputs, lines)
        found = []
        for name, key, text in zip(self.outputs, self.plan.outputs, texts, strict=True):
            value = self.kernel.stored(name, text, self.plan.node(key).dtype)
            if len(self.outputs) > 1:  # an array that is changed may still be read for the next output
                held = self.kernel.names.fresh(f"new_{name}")
                lines.append(f"const {self.kernel.element(name)} {held} = {value};")
                value = held
            found.append(value)
        return found
