"""Causal masks of attention: the distance from the query beyond which keys have no weight and are not read."""

from __future__ import annotations

import math

from kernelmate.synthesis.attention_plan import Attention, axes_of, by_axis
from kernelmate.synthesis.index_maps import Linear, linear, never_negative
from kernelmate.synthesis.plan import Key

NEGLIGIBLE = -1e30
"""Score whose softmax weight is 0 next to any score that a float32 product can have."""

_TURNED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
"""Each comparison with the one that holds for exchanged operands."""


def reach(plan: Attention) -> Linear | None:
    """Returns the maximum distance of a key with weight after its query; None if any key may have weight."""
    return None if plan.query is None else _reach(plan, plan.score)


def _reach(plan: Attention, key: Key) -> Linear | None:
    node, operands = plan.node(key), plan.operands(key)
    if node.op in ("view", "cast"):
        return _reach(plan, operands[0])
    if node.op != "map":
        return None
    if node.data[0] in ("add", "subtract"):
        found = [_reach(plan, one) for one in (operands if node.data[0] == "add" else operands[:1])]
        return next((one for one in found if one is not None), None)
    if node.data[0] != "where":
        return None
    for value, chosen in ((True, operands[1]), (False, operands[2])):
        found_here = _beyond(plan, operands[0], value)
        constant = _constant(plan, chosen)
        if found_here is None or constant is None or constant > NEGLIGIBLE:
            continue
        # A query that has no keys at all gets equal weights from a mask of finite numbers.
        if constant == -math.inf or never_negative(found_here):
            return found_here
    return None


def filled(plan: Attention) -> tuple[Key, int, Key] | None:
    """Returns a bound, an offset and a score for a mask by key positions; None without one.

    Keys below bound + offset have the score, others -inf.
    """
    key = plan.score
    while plan.node(key).op in ("view", "cast"):
        key = plan.operands(key)[0]
    if plan.node(key).op != "map" or plan.node(key).data[0] != "where":
        return None
    condition, *chosen = plan.operands(key)
    while plan.node(condition).op in ("view", "cast"):
        condition = plan.operands(condition)[0]
    name = str(plan.node(condition).data[0]) if plan.node(condition).op == "map" else ""
    if name not in _TURNED:
        return None
    sides = plan.operands(condition)
    for first, second, order in ((sides[0], sides[1], name), (sides[1], sides[0], _TURNED[name])):
        beyond = chosen[0] if order.startswith("greater") else chosen[1]
        if _position(plan, first) != Linear((("__key", 1),)) or _constant(plan, beyond) != -math.inf:
            continue
        whole = plan.node(second).dtype.startswith(("int", "uint"))
        if whole and not any(plan.key in axes_of(one) for one in plan.leaves([second])):
            score = chosen[1] if order.startswith("greater") else chosen[0]
            return second, int(order in ("less_equal", "greater")), score
    return None


def _constant(plan: Attention, key: Key) -> float | None:
    node = plan.node(key)
    if node.op in ("view", "cast"):
        return _constant(plan, plan.operands(key)[0])
    value = node.data[0] if node.op == "constant" else None
    if node.op == "map" and node.data[0] == "negative":
        inner = _constant(plan, plan.operands(key)[0])
        return None if inner is None else -inner
    return float(value) if isinstance(value, int | float) else None


def _beyond(plan: Attention, key: Key, value: bool) -> Linear | None:
    """Returns the distance from the query beyond which a condition has a fixed value."""
    node, operands = plan.node(key), plan.operands(key)
    if node.op in ("view", "cast"):
        return _beyond(plan, operands[0], value)
    if node.op != "map":
        return None
    match node.data[0]:
        case "logical_not":
            return _beyond(plan, operands[0], not value)
        case "logical_or" | "logical_and" if (node.data[0] == "logical_or") == value:
            found = [_beyond(plan, one, value) for one in operands]
            return next((one for one in found if one is not None), None)
        case "where":
            return _chosen(plan, operands, value)
        case "equal" | "not_equal" if _constant(plan, operands[1]) == 0:
            return _beyond(plan, operands[0], value == (node.data[0] == "not_equal"))
        case "greater" | "greater_equal":
            return _compared(plan, operands, strict=node.data[0] == "greater", value=value)
        case "less" | "less_equal":
            return _compared(plan, operands[::-1], strict=node.data[0] == "less", value=value)
    return None


def _chosen(plan: Attention, operands: tuple[Key, ...], value: bool) -> Linear | None:
    """Returns the result of `_beyond` for a mask of zeros and ones by a condition, as `np.tril` and `np.triu` produce."""
    numbers = [_constant(plan, one) for one in operands[1:]]
    if None in numbers or bool(numbers[0]) == bool(numbers[1]):
        return None
    return _beyond(plan, operands[0], value == bool(numbers[0]))


def _compared(plan: Attention, operands: tuple[Key, ...], *, strict: bool, value: bool) -> Linear | None:
    """Returns the same as `_beyond`, for `first > second`, or for `>=` if not strict."""
    sides = [_position(plan, one) for one in operands]
    if sides[0] is None or sides[1] is None:
        return None
    apart = sides[0].plus(sides[1], -1)
    rest = apart.plus(Linear((("__key", 1), ("__query", -1))), -1)
    if value and not any(name.startswith("__") for name, _ in rest.terms):  # key - query + rest > 0
        return rest.times(-1).plus(0 if strict else -1)
    rest = apart.plus(Linear((("__key", 1), ("__query", -1))))
    if not value and not any(name.startswith("__") for name, _ in rest.terms):  # query - key + rest > 0
        return rest.plus(-1 if strict else 0)
    return None


def _position(plan: Attention, key: Key) -> Linear | None:
    """Returns a value as a sum of positions and sizes; None for other values."""
    node, operands = plan.node(key), plan.operands(key)
    if node.op in ("view", "cast"):
        return _position(plan, operands[0])
    if node.op == "iota":
        place = plan.steps(key)
        names = {plan.key: "__key", plan.query: "__query"}
        steps = by_axis(place)
        if any(factor != "1" or axis not in names for axis, factor in steps.items()):
            return None
        return linear(place.offset).plus(Linear.sum((names[axis], 1) for axis in steps))
    if node.op == "size":
        return linear(str(node.data[0]))
    if node.op == "constant":
        value = node.data[0]
        return Linear((), int(value)) if isinstance(value, int) else None
    if node.op == "map" and node.data[0] in ("add", "subtract"):
        first, second = (_position(plan, one) for one in operands)
        if first is None or second is None:
            return None
        return first.plus(second, 1 if node.data[0] == "add" else -1)
    return None
