"""C++ accesses to the elements that a row uses: whole rows, vectors along some axes, scalars and positions.

Of some rows only the leading part matters, because a mask (causal, or by lengths) excludes the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace

from kernelmate.records import Size
from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address, order_of
from kernelmate.synthesis.identities import always
from kernelmate.synthesis.kept_text import own_subscript
from kernelmate.synthesis.packs import Packs
from kernelmate.synthesis.plan import FLAT, Key, Plan, Refused, walk
from kernelmate.synthesis.schedules.passes import Passes

Number = float | bool | None

_NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_FLIPPED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}


@dataclass(frozen=True, slots=True)
class RowEnd:
    """End of the relevant part of a row.

    Attributes:
        conditions: the comparison, wherever it is evaluated.
        beyond: its result from the end on.
        bound: the value that a row's columns are compared with.
        more: columns beyond it that still count.
        values: by key, the value from the end on if it is the same number in all rows, else None. Infinities and NaN in
            elements that do not count are ignored: 0 times any element is 0.
    """

    conditions: tuple[Key, ...]
    beyond: bool
    bound: Key
    more: int
    values: Mapping[Key, Number]

    def skips(self, plan: Plan, reductions: Sequence[Key]) -> bool:
        """Returns True if columns beyond the end change none of the given reductions."""
        neutral = [_NEUTRAL.get(str(plan.node(one).data[0])) for one in reductions]
        found = [self.values[plan.operands(one)[0]] for one in reductions]
        return all(one is not None and one == value for one, value in zip(neutral, found, strict=True))


def ends_of(plan: Plan) -> Iterator[RowEnd]:
    """Yields the row ends that the conditions of a row plan define."""
    for key in walk(plan):
        node = plan.node(key)
        if node.op != "map" or str(node.data[0]) not in _FLIPPED:
            continue
        first, second = plan.operands(key)
        for column, bound, name in ((first, second, str(node.data[0])), (second, first, _FLIPPED[str(node.data[0])])):
            if _is_column(plan, column) and _is_of_row(plan, bound):
                beyond = name.startswith("greater")
                conditions = tuple(one for one in walk(plan) if one[0] == key[0])
                more = int(name in ("less_equal", "greater"))
                yield RowEnd(conditions, beyond, _whole(plan, bound), more, _values(plan, key[0], beyond))


def _values(plan: Plan, condition: int, beyond: bool) -> dict[Key, Number]:
    """Returns each operation's value, None where unknown, under the assumption that node `condition` has the value `beyond`."""
    found: dict[Key, Number] = {}
    for key in walk(plan):
        node = plan.node(key)
        operands = [found[one] for one in plan.operands(key)]
        value: Number = None
        if key[0] == condition:
            value = beyond
        elif node.op == "constant" and isinstance(node.data[0], bool | int | float):
            value = node.data[0]
        elif node.op in ("view", "cast", "reshape"):
            value = operands[0]
        elif node.op == "map" and node.data[0] == "where":
            value = None if operands[0] is None else operands[1 if operands[0] else 2]
        elif node.op == "map":
            value = _mapped(str(node.data[0]), operands)
        found[key] = value
    return found


def _is_column(plan: Plan, key: Key) -> bool:
    key = _whole(plan, key)
    return plan.node(key).op == "iota" and plan.access(key) == "column"


def _whole(plan: Plan, key: Key) -> Key:
    """Returns the key of the operand of any views and casts between integers."""
    node = plan.node(key)
    cast = node.op == "cast" and {node.dtype[:3], plan.graph.nodes[node.args[0]].dtype[:3]} <= {"int", "uin"}
    return _whole(plan, plan.operands(key)[0]) if node.op == "view" or cast else key


def _is_of_row(plan: Plan, key: Key) -> bool:
    """Returns True if a value is an integer common to a row's columns, and not the result of a reduction."""
    node = plan.node(key)
    if node.dtype[:3] not in ("int", "uin") or node.op in ("reduce", "scan", "gather", "take"):
        return False
    if node.op in ("input", "iota"):
        return plan.access(key) in ("row", "part", "once")
    return all(_is_of_row(plan, one) for one in plan.operands(key))


def _mapped(name: str, values: Sequence[Number]) -> Number:
    """Returns the result of an operation whose operands are partly constant."""
    if name in ("multiply", "logical_and", "bitwise_and") and any(one is not None and one == 0 for one in values):
        return 0.0
    if name == "divide" and values[0] == 0:
        return 0.0
    if name == "subtract" and values[0] == -math.inf:
        return -math.inf
    if name == "add" and -math.inf in values:
        return -math.inf
    if name in ("logical_or", "bitwise_or") and any(one is True for one in values):
        return True
    if any(one is None for one in values):
        return None
    return _known(name, [one for one in values if one is not None])


def _known(name: str, values: Sequence[float | bool]) -> Number:
    first, last = values[0], values[-1]
    match name:
        case "exp":
            return 0.0 if first == -math.inf else 1.0 if first == 0 else None
        case "sqrt" | "square" | "abs" | "absolute" | "tanh" | "sin":
            return 0.0 if first == 0 else None
        case "negative":
            return -float(first)
        case "logical_not" | "invert":
            return not first
        case "logical_and" | "bitwise_and":
            return bool(first) and bool(last)
        case "add" | "subtract" | "multiply":
            found = {"add": first + last, "subtract": first - last, "multiply": first * last}[name]
            return None if math.isnan(found) else float(found)
    return None


class RowElements(Passes):
    """Accesses to the elements of arrays in a schedule that goes over rows.

    Attributes:
        names: names of the function's locals.
        packs: packs of the arrays that are accessed element after element.
        pointers: by array, the local that points to a row.
        firsts: for each axis of another shape the name of its position, the position at which a row begins, and the number
            of elements per position.
    """

    names: SimpleNamespace
    packs: Packs
    pointers: dict[str, str]
    firsts: dict[str, tuple[str, str, str]]

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        if node.op == "iota":
            return self._position(key)
        name = str(node.data[0])
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        access = self.plan.access(key)
        if access == "part":
            return self.kernel.loaded(name, f"{name}[{self._part(key)}]")
        if access == "across":
            return self.kernel.loaded(name, f"{name}[{self._across(key)}]")
        if access.startswith("@"):
            return self.kernel.loaded(name, f"{self.pointers[name]}[{self.expressions.at[access]}]")
        texts = {"once": f"{name}[0]", "row": f"{name}[{self.names.row}]"}
        return self.kernel.loaded(name, texts.get(access) or f"{self.packs.locals[name]}.at[{self.names.j}]")

    def _position(self, key: Key) -> str:
        """Returns the position along an axis, of a row or within it."""
        access = self.plan.access(key)
        if access == "across":
            return f"static_cast<long long>({self._across(key)})"
        if access == "column":
            return f"{self.names.c} + {self.names.j}"
        if access == "once":
            return "0"
        # Signed: values computed from the row number, a size_t, would wrap below zero.
        return f"static_cast<long long>({self.names.row if access == 'row' else self._part(key)})"

    def _meet_across(self, key: Key) -> None:
        """Names the position along an axis of another shape at which a row begins.

        A row has an integer number of its elements.

        Raises:
            Refused: it has not, at least not at every size.
        """
        axis = next(str(one) for one in key[1] if one is not None)
        inner, _, side = axis.removeprefix(f"{FLAT}/").partition("%")
        columns = self.plan.columns

        def fits(size: Size) -> bool:
            behind, row = int(evaluate(inner, size)), int(evaluate(columns, size))
            steps = row // behind if behind and row % behind == 0 else 0
            return row == 0 or (steps > 0 and (not side or int(evaluate(side, size)) % steps == 0))

        if not always(self.kernel.contract, fits):
            raise Refused("it reads an array along an axis that crosses its rows")
        if axis not in self.firsts:
            own = own_subscript(self.kernel.kernel.source, str(self.plan.node(key).data[0]))
            name = self.kernel.names.fresh(own or (side[:-1] if re.fullmatch(r"\w+s", side) else "part"))
            behind = self.kernel.size(inner)
            first = self.kernel.names.fresh(f"first_{name}")
            self.firsts[axis] = name, first, behind if behind.isidentifier() else f"({behind})"

    def _first_across(self, axis: str, behind: str) -> str:
        """Returns the position at which a row begins along an axis of another shape.

        `behind` is the number of the row's elements per position.
        """
        names, plan, kernel = self.names, self.plan, self.kernel
        inner, _, side = axis.removeprefix(f"{FLAT}/").partition("%")
        rows = plan.domain[plan.split - 1] if plan.split else ""

        def divided(size: Size) -> bool:
            count = int(evaluate(rows, size))
            return int(evaluate(side, size)) == count * (
                int(evaluate(plan.columns, size)) // int(evaluate(inner, size))
            )

        if side and rows and always(kernel.contract, divided):
            with suppress(Refused):
                count, length = (one if one.isidentifier() else f"({one})" for one in map(kernel.size, (rows, side)))
                return f"static_cast<int>({names.row} % {count}) * ({length} / {count})"
        length = kernel.size(side) if side else ""
        within = f" % {length if length.isidentifier() else f'({length})'}" if side else ""
        return f"static_cast<int>({names.row} * {names.columns} / {behind}{within})"

    def _across(self, key: Key) -> str:
        """Returns the name of the position along an axis of another shape."""
        return self.firsts[next(str(one) for one in key[1] if one is not None)][0]

    def _part(self, key: Key) -> str:
        """Returns the index of an element in an array with some axes of the rows."""
        domain, split = self.plan.domain, self.plan.split
        order = order_of(key[1])
        lengths = {axis: self.kernel.size(domain[axis]) for axis in order[1:] if isinstance(axis, int)}
        at: dict[int | str, str] = {}
        for axis in (one for one in order if isinstance(one, int)):
            inner = self.kernel.size(" * ".join(domain[axis + 1 : split]) or "1")
            inner = inner if re.fullmatch(r"\w+", inner) else f"({inner})"
            text = self.names.row if inner == "1" else f"{self.names.row} / {inner}"
            side = self.kernel.size(domain[axis])
            side = side if re.fullmatch(r"\w+", side) else f"({side})"
            at[axis] = text if axis == 0 else f"{text} % {side}"
        if len(order) > 1:
            at = {axis: f"({text})" if " " in text else text for axis, text in at.items()}
        return address(order, lengths, at)
