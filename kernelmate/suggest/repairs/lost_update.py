"""Makes updates of one element by several threads (`bins[k] += 1`) atomic.

A block-scoped atomic operation becomes device-scoped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import WRONG_OUTPUTS
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import RACES, Repair, findings, simple_statements_at
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree, statement_expression
from kernelmate.suggest.syntax_effects import call_name, operator, plain

_ATOMIC = {"+=": "atomicAdd", "|=": "atomicOr", "&=": "atomicAnd", "^=": "atomicXor"}


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for every update with a reported race."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    edits: dict[Edit, None] = {}
    for spot in findings(request, RACES, warnings=True):
        for statement in simple_statements_at(tree, spot):
            edits |= dict.fromkeys(_edits(tree, statement))
    if edits:
        why = "Threads update one element at once and lose each other's updates; an atomic operation keeps them all."
        yield Rewrite(apply_edits(request.kernel, list(edits)), request.contract, why)


REPAIR = Repair("lost-update", ("correct",), (), rewrites, RACES | WRONG_OUTPUTS)


def _edits(tree: Tree, statement: Node) -> Iterator[Edit]:
    expression = statement_expression(statement)
    made = None if expression is None else _atomic(tree, expression)
    if expression is not None and made is not None:
        yield tree.replace(expression, made)
    for call in tree.walk("call_expression", under=statement):
        name, function = call_name(tree, call), call.child_by_field_name("function")
        if function is not None and re.fullmatch(r"atomic\w+_block", name):
            yield tree.replace(function, name.removesuffix("_block"))


def _atomic(tree: Tree, expression: Node) -> str | None:
    """Returns the atomic call for an update; None if it does not update an array's element."""
    place = expression.child_by_field_name("argument" if expression.type == "update_expression" else "left")
    if place is None or place.type not in {"subscript_expression", "pointer_expression"}:
        return None
    text = tree.text(place)
    if expression.type == "update_expression":
        return f"atomicAdd(&{text}, {'1' if operator(tree, expression) == '++' else '-1'})"
    right, sign = expression.child_by_field_name("right"), operator(tree, expression)
    if right is None:
        return None
    if sign in _ATOMIC:
        return f"{_ATOMIC[sign]}(&{text}, {tree.text(right)})"
    left = right.child_by_field_name("left") if right.type == "binary_expression" else None
    added = right.child_by_field_name("right") if right.type == "binary_expression" else None
    sums = sign == "=" and left is not None and added is not None and operator(tree, right) == "+"
    if not sums or left is None or added is None or plain(tree, left) != plain(tree, place):
        return None
    return f"atomicAdd(&{text}, {tree.text(added)})"
