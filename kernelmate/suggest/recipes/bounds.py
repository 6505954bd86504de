"""Upper bounds of expressions over sizes, from a contract's `require`."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence


class Bounds:
    """Upper bounds of products of sizes, read from comparisons such as `rows * cols < 2**31`.

    Args:
        require: a contract's conditions, all of which hold.
    """

    def __init__(self, require: Sequence[str]) -> None:
        self._known: dict[tuple[str, ...], float] = {}
        for text in require:
            for product, most in _comparisons(ast.parse(text.strip(), mode="eval").body):
                self._known[product] = min(most, self._known.get(product, math.inf))

    def largest(self, expression: str) -> float:
        """Returns the upper bound of the expression; infinite if there is none."""
        return self._most(ast.parse(expression.strip(), mode="eval").body)

    def _most(self, node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() as value):
                return value
            case ast.BinOp(op=ast.Mult()) | ast.Name():
                names, others = _factors(node)
                return self._product(tuple(sorted(names))) * math.prod(self._most(other) for other in others)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._most(left) + self._most(right)
            case ast.BinOp(left=left, op=ast.Sub() | ast.FloorDiv()):
                return self._most(left)
            case ast.Call(func=ast.Name(id="cdiv"), args=[work, _]):
                return self._most(work)
            case ast.Call(func=ast.Name(id="min"), args=args):
                return min(self._most(one) for one in args)
            case ast.Call(func=ast.Name(id="max"), args=args):
                return max(self._most(one) for one in args)
        return math.inf

    def _product(self, names: tuple[str, ...]) -> float:
        """Returns the upper bound of a product of sizes that follows from known bounds; sizes are never negative."""
        if not names:
            return 1
        best = math.inf
        for known, most in self._known.items():
            rest = list(names)
            if names[0] in known and all(name in rest and not rest.remove(name) for name in known):  # type: ignore[func-returns-value]
                best = min(best, most * self._product(tuple(rest)))
        return best


def _factors(node: ast.expr) -> tuple[list[str], list[ast.expr]]:
    """Splits a product into the names that are multiplied, and all other factors."""
    if isinstance(node, ast.Name):
        return [node.id], []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _factors(node.left), _factors(node.right)
        return left[0] + right[0], left[1] + right[1]
    return [], [node]


def _comparisons(node: ast.expr) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yields products of names with their upper bounds: `a * b < 10` bounds `a` and `b` by 9."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            yield from _comparisons(value)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Lt | ast.LtE):
        return
    names, others = _factors(node.left)
    most = _constant(node.comparators[0])
    if names and not others and most is not None:
        yield tuple(sorted(names)), most - isinstance(node.ops[0], ast.Lt)


def _constant(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.BinOp(left=ast.Constant(value=int() as base), op=ast.Pow(), right=ast.Constant(value=int() as power)):
            return base**power if 0 <= power < 64 else None
        case ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=int() as less)):
            most = _constant(left)
            return None if most is None else most - less
    return None
