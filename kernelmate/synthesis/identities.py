"""Identities between expressions of sizes, tried at many sizes that a contract allows."""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import islice

import numpy as np

from kernelmate.errors import ContractError
from kernelmate.records import Contract, Size
from kernelmate.source import evaluate, size_allowed

SIDES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 35, 64)
PROBES, MOST_DRAWN = 64, 2000


def always(contract: Contract, holds: Callable[[Size], bool]) -> bool:
    """Returns True if a condition holds at the listed sizes and at many others.

    False if `require` allows too few to test.
    """
    random, names = np.random.default_rng(0), list(contract.sizes[0])
    drawn = ({name: int(random.choice(SIDES)) for name in names} for _ in range(MOST_DRAWN))
    allowed = list(islice((size for size in drawn if size_allowed(contract, size)), PROBES))
    try:
        return len(allowed) == PROBES and all(map(holds, [*contract.sizes, *allowed]))
    except (ContractError, ArithmeticError):
        return False


def always_equal(contract: Contract, first: str, second: str) -> bool:
    """Returns True if two expressions are equal at the listed sizes and at three others, whatever `require` says."""
    names = list(contract.sizes[0])
    probes = [*contract.sizes, *({name: 30 * (7 * k + i) for i, name in enumerate(names, 3)} for k in (1, 2, 5))]
    try:
        return all(evaluate(first, one) == evaluate(second, one) for one in probes)
    except ContractError:
        return False


def without_floors(contract: Contract, expression: str) -> str:
    """Returns an expression without each `max(size, 1)` of a size that is positive at all sizes that are tried."""
    return (
        ast.unparse(_Floors(contract).visit(ast.parse(expression, mode="eval"))) if "max(" in expression else expression
    )


class _Floors(ast.NodeTransformer):
    """Replaces `max(size, 1)` by the size."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """The size, where the call gives nothing else."""
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="max"), args=[size, ast.Constant(value=1)] | [ast.Constant(value=1), size]):
                text = ast.unparse(size)
                if always(self.contract, lambda at: evaluate(text, at) >= 1):
                    return size
        return node
