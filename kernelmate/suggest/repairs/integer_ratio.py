"""Computes quotients of integers as float if they are used as floats: `1 / n` is 0 for every n above 1."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import WRONG_OUTPUTS
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import Repair, each_then_all, line_of
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import call_name, operator, root_name

WHOLE = frozenset({"int", "unsigned", "unsigned int", "long long", "unsigned long long", "size_t", "int64_t", "uint64_t", "int32_t", "uint32_t", "short", "unsigned short", "char", "unsigned char", "int8_t", "uint8_t", "int16_t", "uint16_t"})  # fmt: skip
FLOATING = frozenset({"float", "double", "half", "__half", "__nv_bfloat16"})
_FUNCTION = re.compile(r"(?:__)?(?:exp|log|sqrt|rsqrt|pow|sin|cos|tan|tanh|fmax|fmin|fabs|floor|ceil|round|fma|erf)\w*")


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields a candidate for each such quotient, then one for all of them."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    edits: list[tuple[Edit, str]] = []
    for node in tree.walk("binary_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None or operator(tree, node) != "/":
            continue
        if _whole(tree, left) and _whole(tree, right) and _meant_as_float(tree, node):
            start = tree.span(left)[0]
            line = tree.kernel.unit.locate(line_of(tree, node), None)[0]
            why = f"`{tree.text(node)}` in line {line} divides whole numbers and drops the fraction, where a float is wanted."
            edits.append(((start, start, "(float)"), why))
    yield from each_then_all(
        request, edits, "Every quotient of whole numbers in float arithmetic is computed in float."
    )


REPAIR = Repair("integer-ratio", ("correct",), (), rewrites, WRONG_OUTPUTS)


def _whole(tree: Tree, node: Node) -> bool:
    """Returns True if the expression has an integer type, as far as its names show."""
    node = strip_parentheses(node)
    if node.type == "number_literal":
        return re.fullmatch(r"\d+[uUlL]*|0[xX][\da-fA-F]+[uUlL]*", tree.text(node)) is not None
    if node.type == "field_expression":
        return re.fullmatch(r"(?:threadIdx|blockIdx|blockDim|gridDim)\.[xyz]", tree.text(node)) is not None
    if node.type == "cast_expression":
        kind = node.child_by_field_name("type")
        return kind is not None and " ".join(tree.text(kind).split()) in WHOLE
    if node.type in {"identifier", "subscript_expression"}:
        variable = tree.variable(root_name(tree, node) or "")
        return variable is not None and variable.type in WHOLE
    if node.type == "binary_expression" and operator(tree, node) in {"+", "-", "*", "/", "%"}:
        sides = (node.child_by_field_name(side) for side in ("left", "right"))
        return all(side is not None and _whole(tree, side) for side in sides)
    return False


def _meant_as_float(tree: Tree, node: Node) -> bool:
    """Returns True if the quotient is used as a float: by an operand, a variable, an element, or a math function."""
    while node.parent is not None:
        parent = node.parent
        if parent.type == "parenthesized_expression" or parent.type == "unary_expression":
            node = parent
            continue
        if parent.type == "binary_expression":
            if operator(tree, parent) not in {"+", "-", "*", "/"}:
                return False
            left, right = parent.child_by_field_name("left"), parent.child_by_field_name("right")
            other = right if left is not None and left.id == node.id else left
            if other is not None and not _whole(tree, other):
                return True
            node = parent
            continue
        if parent.type == "argument_list":
            call = parent.parent
            return call is not None and _FUNCTION.fullmatch(call_name(tree, call)) is not None
        if parent.type == "cast_expression":
            kind = parent.child_by_field_name("type")
            return kind is not None and tree.text(kind).strip() in FLOATING
        return _taken_by_float(tree, parent)
    return False


def _taken_by_float(tree: Tree, parent: Node) -> bool:
    if parent.type == "init_declarator":
        declaration = parent.parent
        kind = None if declaration is None else declaration.child_by_field_name("type")
        return kind is not None and tree.text(kind).strip() in FLOATING
    left = parent.child_by_field_name("left") if parent.type == "assignment_expression" else None
    variable = None if left is None else tree.variable(root_name(tree, left) or "")
    return variable is not None and variable.type in FLOATING
