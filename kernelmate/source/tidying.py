"""Simplifies contract expressions that were read from host code: rounded-up quotients become `cdiv`, whole numbers are folded."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeGuard

from kernelmate.source.expressions import LARGEST, parse_expression


def tidied(expression: str, threads: int | None = None) -> str:
    """Rewrite the usual spellings of a rounded-up quotient as `cdiv`.

    Args:
        expression: over contract names.
        threads: threads of a one-dimensional block; an equal number, as a divisor or factor, is taken to mean the
            block.
    """
    tree = _Tidying(threads).visit(parse_expression(expression))
    return ast.unparse(tree)


class _Tidying(ast.NodeTransformer):
    def __init__(self, threads: int | None) -> None:
        self.threads = threads

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left: ast.expr = self.visit(node.left)
        right: ast.expr = self.visit(node.right)
        threads = isinstance(node.op, ast.Mult) and any(self._block_or(one) is not one for one in (left, right))
        if (
            not threads
            and _is_whole(left)
            and _is_whole(right)
            and (folded := _folded(node.op, left.value, right.value)) is not None
        ):
            return ast.Constant(folded)
        numerator = _rounded_up(left, right) if isinstance(node.op, ast.FloorDiv) else None
        if numerator is not None:
            return ast.Call(ast.Name("cdiv"), [numerator, self._block_or(right)], [])
        if isinstance(node.op, ast.Mult):
            if _is_whole(left) and left.value == 1:
                return right
            return ast.BinOp(self._block_or(left), node.op, self._block_or(right))
        return ast.BinOp(left, node.op, right)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        operands = [self.visit(operand) for operand in node.args]
        if isinstance(node.func, ast.Name) and node.func.id == "cdiv":
            if all(_is_whole(one) for one in operands) and operands[1].value:
                return ast.Constant(-(-operands[0].value // operands[1].value))
            operands[1] = self._block_or(operands[1])
        return ast.Call(node.func, operands, [])

    def _block_or(self, node: ast.expr) -> ast.expr:
        is_block = isinstance(node, ast.Constant) and self.threads is not None and node.value == self.threads
        return ast.Name("block") if is_block else node


def _is_whole(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _folded(sign: ast.operator, left: Any, right: Any) -> int | None:
    """Returns the value of two whole numbers; None for a sign that is not folded, and for values that are too large."""
    if isinstance(sign, ast.FloorDiv | ast.Mod) and right == 0:
        return None
    values: dict[type[ast.operator], Callable[[], int]] = {
        ast.Add: lambda: left + right,
        ast.Sub: lambda: left - right,
        ast.Mult: lambda: left * right,
        ast.FloorDiv: lambda: left // right,
        ast.Mod: lambda: left % right,
    }
    value = values[type(sign)]() if type(sign) in values else None
    return value if value is not None and 0 <= value <= LARGEST else None


def _rounded_up(left: ast.expr, divisor: ast.expr) -> ast.expr | None:
    """Returns the `a` of `(a + d - 1) // d` in its usual spellings; None for any other quotient."""
    match left:
        case ast.BinOp(left=ast.BinOp(left=a, op=ast.Add(), right=d), op=ast.Sub(), right=ast.Constant(value=1)):
            return a if ast.dump(d) == ast.dump(divisor) else None
        case ast.BinOp(left=a, op=ast.Add(), right=ast.BinOp(left=d, op=ast.Sub(), right=ast.Constant(value=1))):
            return a if ast.dump(d) == ast.dump(divisor) else None
        case ast.BinOp(left=a, op=ast.Add(), right=ast.Constant(value=int() as less)):
            return a if isinstance(divisor, ast.Constant) and divisor.value == less + 1 else None
    return None
