"""Results that a mask leaves as they are, as those above a diagonal: whole tiles of them need no work."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.synthesis.plan import Key, Plan, walk

_UPWARDS = {"less": (0, 1), "less_equal": (0, 1), "greater": (1, 0), "greater_equal": (1, 0)}
"""For each comparison, the position of the operand that makes it false when large, preceded by the other's."""


def computed_where(plan: Plan, output: Key, name: str) -> Key | None:
    """Returns the comparison under which an output is computed; elsewhere it keeps its array `name`'s contents."""
    node = plan.node(output)
    if node.op in ("view", "cast"):
        return computed_where(plan, plan.operands(output)[0], name)
    if node.op != "map" or node.data[0] != "where":
        return None
    condition, _, old = (_behind(plan, one) for one in plan.operands(output))
    same = plan.node(old).op == "input" and plan.node(old).data[0] == name and old[1] == output[1]
    is_comparison = plan.node(condition).op == "map" and plan.node(condition).data[0] in _UPWARDS
    return condition if same and is_comparison and any(_sides(plan, condition)) else None


def corner(plan: Plan, condition: Key) -> dict[int, bool]:
    """Returns for each axis of a comparison whether it holds at the last position rather than the first."""
    return {axis: last for last, key in _sides(plan, condition) for axis in _axes(plan, key)}


def _sides(plan: Plan, condition: Key) -> list[tuple[bool, Key]]:
    """Returns the operands of a comparison of values that grow along separate axes; none otherwise."""
    operands = plan.operands(condition)
    low, high = (operands[place] for place in _UPWARDS[str(plan.node(condition).data[0])])
    apart = {*_axes(plan, low)}.isdisjoint(_axes(plan, high))
    return [(False, low), (True, high)] if apart and _grows(plan, low) and _grows(plan, high) else []


def _axes(plan: Plan, key: Key) -> Iterator[int]:
    below = Plan(plan.graph, plan.domain, plan.split, (key,), plan.kind, plan.gone)
    for one in walk(below):
        if plan.node(one).op == "iota":
            yield from (axis for axis in one[1] if isinstance(axis, int))


def _grows(plan: Plan, key: Key) -> bool:
    """True if a whole number is never smaller at a later position."""
    node, operands = plan.node(key), plan.operands(key)
    if node.op in ("iota", "size", "constant"):
        return True
    if node.op in ("view", "cast"):
        return node.dtype[:3] in ("int", "uin") and _grows(plan, operands[0])
    if node.op != "map" or node.dtype[:3] not in ("int", "uin"):
        return False
    if node.data[0] == "add":
        return all(_grows(plan, one) for one in operands)
    by = plan.node(_behind(plan, operands[-1]))
    fixed = by.op in ("constant", "size")
    positive = by.op == "size" or (by.op == "constant" and isinstance(by.data[0], int) and by.data[0] > 0)
    if node.data[0] == "subtract":
        return fixed and _grows(plan, operands[0])
    return node.data[0] in ("floor_divide", "multiply") and positive and _grows(plan, operands[0])


def _behind(plan: Plan, key: Key) -> Key:
    return _behind(plan, plan.operands(key)[0]) if plan.node(key).op in ("view", "cast") else key
