"""Initialises a maximum, a minimum or a product with its neutral element: 0 is wrong for a maximum of negative numbers.

Literals that a variable gets in its declaration, in a reset, or as padding for threads without an element become the
neutral element of its operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import WRONG_OUTPUTS
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import Repair, each_then_all
from kernelmate.suggest.syntax import DeclaredVariable, Edit, Node, Tree, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import call_name, operator, plain, root_name

_FLOATING = frozenset({"float", "double"})
_LARGEST = {"int": "2147483647", "int32_t": "2147483647", "unsigned": "4294967295u", "unsigned int": "4294967295u"}
_LEAST = {"int": "(-2147483647 - 1)", "int32_t": "(-2147483647 - 1)", "unsigned": "0u", "unsigned int": "0u"}
_LITERAL = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFuUlL]*")


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields a candidate for each variable's initial value, then one for all of them."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    edits: list[tuple[Edit, str]] = []
    for name, kind in _gathered(tree).items():
        variable = tree.variable(name)
        neutral = None if variable is None else _neutral(variable, kind)
        for literal in () if neutral is None else _given(tree, name):
            if neutral is not None and not _same(tree.text(literal), neutral):
                why = f"`{name}` accumulates a {kind}, and its start {tree.text(literal)} takes part in it; {neutral} does not."
                edits.append((tree.replace(literal, neutral), why))
    if len(edits) > 1:  # if one initial value is wrong, the others usually are too, so all of them are replaced first
        edits_of = [edit for edit, _ in edits]
        yield from each_then_all(request, [(edits_of[0], edits[0][1])], "")
    yield from each_then_all(request, edits, "Every start, reset and filler becomes the neutral value.")


REPAIR = Repair("neutral-start", ("correct",), (), rewrites, WRONG_OUTPUTS)


def _gathered(tree: Tree) -> dict[str, str]:
    """Returns variables that are accumulated by one operation only: `maximum`, `minimum` or `product`."""
    found: dict[str, set[str]] = {}
    for node in tree.walk("assignment_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        name = None if left is None else root_name(tree, left)
        if left is None or right is None or name is None:
            continue
        kind = _operation(tree, node, left, right)
        if kind is not None:
            found.setdefault(name, set()).add(kind)
    return {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1 and kinds <= {"maximum", "minimum", "product"}}  # fmt: skip


def _operation(tree: Tree, node: Node, left: Node, right: Node) -> str | None:
    place, sign = plain(tree, left), operator(tree, node)
    if sign in {"+=", "-="}:
        return "sum"
    if sign == "*=":
        return "product"
    right = strip_parentheses(right)
    if right.type == "call_expression":
        function = call_name(tree, right).removeprefix("std::")
        arguments = right.child_by_field_name("arguments")
        given = [] if arguments is None else [plain(tree, one) for one in arguments.named_children]
        kind = {"max": "maximum", "min": "minimum"}.get(function.removeprefix("f").removesuffix("f"))
        return kind if place in given else None
    return _compared(tree, node, place, plain(tree, right))


def _compared(tree: Tree, node: Node, place: str, value: str) -> str | None:
    """Returns the operation of `if (value > place) place = value;`: `maximum` or `minimum`.

    The result is None for other statements.
    """
    above: Node | None = node
    for _ in range(4):
        above = None if above is None else above.parent
        if above is None or above.type == "if_statement":
            break
    clause = None if above is None or above.type != "if_statement" else above.child_by_field_name("condition")
    inner = None if clause is None else clause.child_by_field_name("value")
    text = "" if inner is None else plain(tree, inner)
    if text in {f"{value}>{place}", f"{place}<{value}", f"{value}>={place}"}:
        return "maximum"
    return "minimum" if text in {f"{value}<{place}", f"{place}>{value}", f"{value}<={place}"} else None


def _neutral(variable: DeclaredVariable, kind: str) -> str | None:
    if kind == "product":
        return "1.0f" if variable.type in _FLOATING else "1"
    if variable.type in _FLOATING:
        return "-INFINITY" if kind == "maximum" else "INFINITY"
    return (_LEAST if kind == "maximum" else _LARGEST).get(variable.type)


def _given(tree: Tree, name: str) -> Iterator[Node]:
    """Yields literals assigned to the variable: in its declaration, in assignments, and in the branches of `? :`."""
    variable = tree.variable(name)
    if variable is not None and variable.value is not None:
        yield from _literals(tree, variable.value)
    for node in tree.walk("assignment_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is not None and right is not None and operator(tree, node) == "=" and root_name(tree, left) == name:
            yield from _literals(tree, right)


def _literals(tree: Tree, value: Node) -> Iterator[Node]:
    value = strip_parentheses(value)
    if value.type == "conditional_expression":
        for side in ("consequence", "alternative"):
            part = value.child_by_field_name(side)
            if part is not None:
                yield from _literals(tree, part)
    elif _LITERAL.fullmatch("".join(tree.text(value).split())):
        yield value


def _same(literal: str, neutral: str) -> bool:
    return literal.rstrip("fFuUlL").rstrip("0").rstrip(".") == neutral.rstrip("fFuUlL").rstrip("0").rstrip(".")
