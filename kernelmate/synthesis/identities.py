"""Identities between size expressions, tested at many sizes that a contract allows.

A contract's `require` may make sizes multiples of others, as in `cols == 2 * half`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

import numpy as np

from kernelmate.errors import ContractError
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes, evaluate, size_allowed
from kernelmate.source.host_arrays import factors_of

Multiple = tuple[str, int, str]
"""A size, a factor, and the size that it is a multiple of."""


def multiple_text(multiple: Multiple) -> str:
    """Returns the condition as written in a contract."""
    name, factor, of = multiple
    return f"{name} == {factor} * {of}"


def multiples_of(require: Iterable[str]) -> tuple[Multiple, ...]:
    """Returns the conditions that have the form of `multiple_text`."""
    found = (re.fullmatch(r"(\w+) == (\d+) \* (\w+)", one.strip()) for one in require)
    return tuple((one[1], int(one[2]), one[3]) for one in found if one is not None)


def with_multiples(size: Size, multiples: Sequence[Multiple]) -> dict[str, int]:
    """Returns a size that satisfies the conditions, as far as possible.

    Each multiple is computed anew; if another condition has fixed it already, the size that it is a multiple of is
    computed instead.
    """
    made, fixed = dict(size), set[str]()
    for name, factor, of in sorted(multiples, key=lambda one: -one[1]):
        if name in fixed:
            made[of] = made[name] // factor
        else:
            made[name] = factor * made[of]
        fixed |= {name, of}
    return made


SIDES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 35, 64)
PROBES, MOST_DRAWN = 64, 2000


def always(contract: Contract, holds: Callable[[Size], bool]) -> bool:
    """Returns True if a condition holds at the listed sizes and at many others, including some with a size of zero.

    The result is False if `require` allows too few sizes to test.
    """
    arrays = tuple(map(repr, contract.args))
    allowed = _allowed(_Domain(tuple(contract.sizes[0]), contract.require, arrays, contract))
    try:
        if len(allowed) < PROBES or not all(map(holds, [*contract.sizes, *allowed])):
            return False
    except (ContractError, ArithmeticError):
        return False
    return all(_holds_where_defined(holds, size) for size in _with_zero(contract))


@dataclass(frozen=True, slots=True)
class _Domain:
    """Names of the sizes of a contract, and what limits them."""

    names: tuple[str, ...]
    require: tuple[str, ...]
    arrays: tuple[str, ...]
    contract: Contract = field(compare=False)


@lru_cache(maxsize=16)
def _allowed(domain: _Domain) -> tuple[Size, ...]:
    """Returns up to `PROBES` drawn sizes that a contract allows, the same ones at each call."""
    contract, random = domain.contract, np.random.default_rng(0)
    multiples = multiples_of(contract.require)
    rows = random.choice(SIDES, size=(MOST_DRAWN, len(domain.names))).tolist()
    drawn = (with_multiples(dict(zip(domain.names, row, strict=True)), multiples) for row in rows)
    return tuple(islice((size for size in drawn if size_allowed(contract, size)), PROBES))


def always_equal(contract: Contract, first: str, second: str) -> bool:
    """Returns True if two expressions are equal at the listed sizes and at others.

    Three of the others are tested whatever `require` says, except that they are multiples where it demands that. Those
    with a size of zero are tested only if it allows them.
    """

    def equal(size: Size) -> bool:
        return evaluate(first, size) == evaluate(second, size)

    names = list(contract.sizes[0])
    tried = ({name: 30 * (7 * k + i) for i, name in enumerate(names, 3)} for k in (1, 2, 5))
    probes = [*contract.sizes, *(with_multiples(one, multiples_of(contract.require)) for one in tried)]
    try:
        if not all(map(equal, probes)):
            return False
    except ContractError:
        return False
    return all(_holds_where_defined(equal, size) for size in _with_zero(contract))


def _with_zero(contract: Contract) -> Iterator[Size]:
    """Yields the listed sizes with one size set to zero, if `require` allows that and outputs still have elements."""
    for listed in contract.sizes:
        for name in listed:
            size = {**listed, name: 0}
            with suppress(ContractError, ArithmeticError):
                if size_allowed(contract, size) and _has_results(contract, size):
                    yield size


def _has_results(contract: Contract, size: Size) -> bool:
    shapes = argument_shapes(contract, size)
    return any(math.prod(shapes[one.name]) > 0 for one in contract.args if one.direction in ("out", "inout"))


def _holds_where_defined(holds: Callable[[Size], bool], size: Size) -> bool:
    """Returns True if a condition holds at a size, or is undefined there."""
    try:
        return holds(size)
    except (ContractError, ArithmeticError):
        return True


def without_floors(contract: Contract, expression: str) -> str:
    """Returns an expression without each `max(size, 1)` whose size is at least 1 wherever a result depends on it."""
    return (
        ast.unparse(_Floors(contract).visit(ast.parse(expression, mode="eval"))) if "max(" in expression else expression
    )


def divided_first(contract: Contract, expression: str) -> str:
    """Returns an expression in which a factor that is always divisible is divided before the multiplication.

    `channels * pixels // groups` may exceed an `int` where `channels // groups * pixels` does not.
    """
    if "//" not in expression or "*" not in expression:
        return expression
    return ast.unparse(_Quotients(contract).visit(ast.parse(expression, mode="eval")))


class _Quotients(ast.NodeTransformer):
    """Divides the first factor of a product that is always divisible."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Replaces the quotient of a product by the product with a factor's quotient."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.FloorDiv) or not isinstance(node.left, ast.BinOp):
            return node
        factors = list(factors_of(node.left))
        if len(factors) < 2 or not isinstance(node.right, ast.Name):
            return node
        for place, factor in enumerate(factors):
            rest = f"({ast.unparse(factor)}) % {node.right.id}"
            if always(self.contract, lambda at, rest=rest: evaluate(rest, at) == 0):  # type: ignore[misc]
                product: ast.expr = ast.BinOp(factor, ast.FloorDiv(), node.right)
                for other in (*factors[:place], *factors[place + 1 :]):
                    product = ast.BinOp(product, ast.Mult(), other)
                return product
        return node


class _Floors(ast.NodeTransformer):
    """Replaces `max(size, 1)` by the size."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Replaces a call that always equals a size by that size."""
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="max"), args=[size, ast.Constant(value=1)] | [ast.Constant(value=1), size]):
                text = ast.unparse(size)
                if always(self.contract, lambda at: evaluate(text, at) >= 1):
                    return size
        return node
