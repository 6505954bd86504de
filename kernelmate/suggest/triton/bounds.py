"""Comparisons of indices that a contract's `require` makes always true, as `i < n` of whole blocks is."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from kernelmate.suggest.triton.program import TritonProgram

_CONDITION = re.compile(r"\s*(\w+)\s*(%\s*(\d+)\s*==\s*0|>=|<=|==|>|<)\s*(\d+)?\s*")
_BLOCKS = re.compile(r"cdiv\(\s*(\w+)\s*,\s*(\d+)\s*\)")

Form = dict[str, int]
"""A linear expression: factors of sizes by name, and of `""` for the constant."""


class IndexBounds:
    """Bounds of index expressions of a program over all sizes that its contract permits.

    Program numbers, loop variables and `tl.arange` begin at 0. The last program of a grid of `cdiv(n, B)` begins at
    `n - B` if B divides n, and so does the last iteration of `range(0, n, B)`.

    Args:
        program: the kernel.
    """

    def __init__(self, program: TritonProgram) -> None:
        self._program = program
        self._multiple: dict[str, int] = {}
        self._least: dict[str, int] = {}
        self._most: dict[str, int] = {}
        for found in filter(None, (_CONDITION.fullmatch(one) for one in program.contract.require)):
            self._note(found[1], found[2], int(found[3] or found[4] or 0))

    def _note(self, name: str, sign: str, number: int) -> None:
        if sign.startswith("%"):
            self._multiple[name] = math.lcm(self._multiple.get(name, 1), max(number, 1))
        if sign in (">=", "==", ">"):
            self._least[name] = max(self._least.get(name, 0), number + (sign == ">"))
        if sign in ("<=", "==", "<"):
            self._most[name] = min(self._most.get(name, number), number - (sign == "<"))

    def most(self, size: str) -> int | None:
        """Returns the largest value of a size, by `require`; None without a bound."""
        return int(size) if size.isdigit() else self._most.get(size)

    def multiple(self, size: str) -> int:
        """Returns a number that divides every value of an expression of sizes; 1 if none is known."""
        return self._multiple_of(ast.parse(size.strip(), mode="eval").body)

    def _multiple_of(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int() as value) if value > 0:
                return value
            case ast.Name(id=name):
                return self._multiple.get(name, 1)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self._multiple_of(left) * self._multiple_of(right)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                return math.gcd(self._multiple_of(left), self._multiple_of(right))
        return 1

    def always(self, node: ast.expr) -> bool:
        """Returns True for a condition that holds for all elements at all permitted sizes."""
        node = self._program.resolved(node)
        match node:
            case ast.Subscript(value=value):
                return self.always(value)
            case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
                return self.always(left) and self.always(right)
            case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() as sign], comparators=[right]):
                return self._is_less(left, right, isinstance(sign, ast.LtE))
            case ast.Compare(left=left, ops=[ast.Gt() | ast.GtE() as sign], comparators=[right]):
                return self._is_less(right, left, isinstance(sign, ast.GtE))
        return False

    def _is_less(self, left: ast.expr, right: ast.expr, or_equal: bool) -> bool:
        terms: dict[str, tuple[int, ast.expr]] = {}
        if not (self._collect(left, 1, terms) and self._collect(right, -1, terms)):
            return False
        total: Form = {}
        for factor, node in terms.values():
            bound = self._upper(factor, node)
            if bound is None:
                return False
            for name, value in bound.items():
                total[name] = total.get(name, 0) + value
        most = total.pop("", 0)
        for name, factor in total.items():
            limit = self._smallest(name) if factor < 0 else self._most.get(name) if factor else 0
            if limit is None:
                return False
            most += factor * limit
        return most <= 0 if or_equal else most < 0

    def _smallest(self, size: str) -> int:
        least, multiple = self._least.get(size, 0), self._multiple.get(size, 1)
        return -(-least // multiple) * multiple

    def _collect(self, node: ast.expr, factor: int, terms: dict[str, tuple[int, ast.expr]]) -> bool:
        """Adds the terms of a sum, each a factor and what it multiplies; returns False for any other expression."""
        node = self._program.resolved(node)
        number = self._program.number(node)
        match node:
            case _ if number is not None:
                node, factor = ast.Constant(1), factor * number
            case ast.Subscript(value=value):
                return self._collect(value, factor, terms)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=right):
                other = factor if isinstance(sign, ast.Add) else -factor
                return self._collect(left, factor, terms) and self._collect(right, other, terms)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                first, second = self._program.number(left), self._program.number(right)
                if first is not None:
                    return self._collect(right, factor * first, terms)
                return second is not None and self._collect(left, factor * second, terms)
        key = ast.dump(node)
        terms[key] = (terms.get(key, (0, node))[0] + factor, node)
        return True

    def _upper(self, factor: int, node: ast.expr) -> Form | None:
        """Returns the largest value of a term; None if it is not known."""
        program = self._program
        if factor == 0:
            return {}
        if isinstance(node, ast.Constant):
            return {"": factor}
        size = program.size(node)
        if size is not None:
            return {"": factor * int(size)} if size.isdigit() else {size: factor} if size.isidentifier() else None
        counts = list(self._counts(node))
        if not counts:
            return None
        if factor < 0:
            return {}  # it begins at 0
        return next((form for form in (self._last(factor, *one) for one in counts) if form is not None), None)

    def _counts(self, node: ast.expr) -> Iterator[tuple[str, int]]:
        """Yields the count, as text such as `cdiv(n, B)`, and the step of an index from 0: a program's, `arange`'s or a loop's."""
        program = self._program
        axis = program.axis(node)
        if axis is not None and axis < len(program.contract.grid):
            yield program.contract.grid[axis].strip(), 1
        elif isinstance(node, ast.Call) and program.called(node) == "arange" and len(node.args) == 2:
            if program.number(node.args[0]) == 0:
                yield str(program.number(node.args[1])), 1
        elif isinstance(node, ast.Name) and isinstance(turns := program.turns(node.id), ast.Call):
            yield from self._turns(turns)

    def _turns(self, call: ast.Call) -> Iterator[tuple[str, int]]:
        program = self._program
        if ast.unparse(call.func) != "range" and program.called(call) not in ("range", "static_range"):
            return
        first = call.args[0] if len(call.args) > 1 else ast.Constant(0)
        step = program.number(call.args[2]) if len(call.args) > 2 else 1
        end = program.resolved(call.args[min(len(call.args), 2) - 1])
        if program.number(first) != 0 or step is None or step < 1:
            return
        if isinstance(end, ast.Call) and program.called(end) == "cdiv" and len(end.args) == 2:
            work, length = program.size(end.args[0]), program.number(end.args[1])
            if work is not None and length is not None and step == 1:
                yield f"cdiv({work}, {length})", 1
        else:
            size = program.size(end) or str(program.number(end))
            yield f"cdiv({size}, {step})" if step > 1 else size, step

    def _last(self, factor: int, count: str, step: int) -> Form | None:
        """Returns the value of the last of `count` iterations with a step, times a factor."""
        if count.isdigit():
            return {"": factor * step * (int(count) - 1)}
        if count.isidentifier():
            return {count: factor * step, "": -factor * step} if count != "None" else None
        blocks = _BLOCKS.fullmatch(count)
        if blocks is None or int(blocks[2]) != factor * step or self.multiple(blocks[1]) % int(blocks[2]):
            return None
        return {blocks[1]: 1, "": -int(blocks[2])} if blocks[1].isidentifier() else None
