"""Rows of which only the leading part matters, because a mask (causal, or by lengths) excludes the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelmate.synthesis.plan import Key, Plan, walk

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
    """Returns the known values where a condition has one result."""
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
    """Returns the key of the value behind views and casts between integers."""
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
