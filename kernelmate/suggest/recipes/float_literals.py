"""Replaces double literals and functions in float code.

`0.5` makes the whole expression double, which some GPUs execute at 1/64 of the float rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import Kernel
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.arithmetic_kinds import (
    DOUBLE_LITERAL,
    EITHER,
    FUNCTIONS,
    ArithmeticExpression,
    LiteralMacro,
    function_name,
    kind_of,
    operator_of,
    type_kind,
)
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for all expressions that are double only by spelling and whose result becomes a float."""
    tree = read_tree(request.kernel)
    if tree is None or ".f64" not in request.compiled.ptx:
        return
    macros = _literal_macros(request.kernel)
    edits: dict[tuple[int, int], str] = {}
    changed: list[str] = []
    for top in _tops(tree, macros):
        expression = ArithmeticExpression()
        kind = kind_of(tree, top, expression, macros)
        if kind != "double" or not expression.convertible or not _becomes_float(tree, top, expression, macros):
            continue
        for start, end, new in _edits(tree, expression, macros):
            edits[start, end] = new
        changed += [tree.text(node) for node in (*expression.literals, *expression.functions)]
    if edits:
        kernel = apply_edits(request.kernel, [(start, end, new) for (start, end), new in edits.items()])
        yield Rewrite(kernel, request.contract, _why(request, changed))


RECIPE = Recipe("float-literals", ("time", "registers"), ("accuracy",), rewrites)


def _literal_macros(kernel: Kernel) -> dict[str, LiteralMacro]:
    text = kernel.unit.text
    found: dict[str, LiteralMacro] = {}
    for match in re.finditer(
        r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?([-\w.+']+)\)?[ \t]*(?://.*)?$", text, re.MULTILINE
    ):
        literal = match[2].lstrip("-")
        if not DOUBLE_LITERAL.fullmatch(literal):
            continue
        outside = text[: match.start()] + text[match.end() : kernel.start] + text[kernel.end :]
        if not re.search(rf"\b{match[1]}\b", outside):
            end = match.end(2)
            found[match[1]] = LiteralMacro(literal, (end - len(literal), end))
    return found


def _tops(tree: Tree, macros: dict[str, LiteralMacro]) -> Iterator[Node]:
    """Yields the largest arithmetic expression around each double literal or function, each once."""
    seen: set[int] = set()
    for node in tree.walk("number_literal", "call_expression", "identifier"):
        if node.type == "number_literal" and not DOUBLE_LITERAL.fullmatch(tree.text(node)):
            continue
        if node.type == "identifier" and tree.text(node) not in macros:
            continue
        if node.type == "call_expression" and function_name(tree, node) not in FUNCTIONS:
            continue
        top = _top(tree, node)
        if top.id not in seen:
            seen.add(top.id)
            yield top


def _top(tree: Tree, node: Node) -> Node:
    while node.parent is not None:
        parent = node.parent
        if parent.type == "argument_list":
            call = parent.parent
            if call is None or function_name(tree, call) not in FUNCTIONS | EITHER:
                return node
            node = call
        elif _carries_type(parent, node):
            node = parent
        else:
            return node
    return node


def _carries_type(parent: Node, node: Node) -> bool:
    """Returns True if the parent's type depends on this operand's."""
    if parent.type == "binary_expression":
        return operator_of(parent) in {"+", "-", "*", "/"}
    if parent.type == "conditional_expression":
        return not _is_condition(parent, node)
    return parent.type in {"parenthesized_expression", "unary_expression"}


def _is_condition(parent: Node, node: Node) -> bool:
    condition = parent.child_by_field_name("condition")
    return condition is not None and condition.id == node.id


def _becomes_float(tree: Tree, top: Node, expression: ArithmeticExpression, macros: dict[str, LiteralMacro]) -> bool:
    """Returns True if the result is stored as a float, compared with one, or is an argument of a float function."""
    parent = top.parent
    if parent is None:
        return False
    other: Node | None = None
    if parent.type == "init_declarator":
        declared = next((v for v in tree.variables.values() if v is not None and v.node.id == parent.id), None)
        return (
            declared is not None and not declared.pointers and not declared.dims and type_kind(declared.type) == "float"
        )
    if parent.type == "assignment_expression":
        other = parent.child_by_field_name("left")
        if other is not None and other.id == top.id:
            return False
    elif parent.type == "binary_expression":
        sides = [side for side in parent.named_children if side.id != top.id]
        other = sides[0] if len(sides) == 1 else None
        if (
            other is not None
            and expression.has_float
            and kind_of(tree, other, ArithmeticExpression(), macros) == "double"
        ):
            return _only_spelling(tree, other, macros)
    elif parent.type == "cast_expression":
        return type_kind(tree.text(parent.named_children[0])) == "float"
    elif parent.type == "argument_list":
        call = parent.parent
        name = "" if call is None else function_name(tree, call)
        return name == "float" or (name.endswith("f") and name.removesuffix("f") in FUNCTIONS)
    if other is None or operator_of(parent) in {"%=", "<<=", ">>=", "&=", "|=", "^="}:
        return False
    return kind_of(tree, other, ArithmeticExpression(), macros) == "float"


def _only_spelling(tree: Tree, node: Node, macros: dict[str, LiteralMacro]) -> bool:
    """Returns True if an expression is double only because of its literals and functions."""
    expression = ArithmeticExpression()
    kind_of(tree, node, expression, macros)
    return expression.convertible and bool(expression.literals or expression.functions)


def _edits(tree: Tree, expression: ArithmeticExpression, macros: dict[str, LiteralMacro]) -> Iterator[Edit]:
    for node in expression.literals:
        text = tree.text(node)
        end = macros[text].span[1] if text in macros else tree.span(node)[1]
        yield end, end, "f"
    for node in expression.functions:
        start, end = tree.span(node)
        yield start, end, tree.text(node).removeprefix("std::") + "f"


def _why(request: SuggestRequest, changed: list[str]) -> str:
    names = list(dict.fromkeys(changed))
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    target = request.target
    ratio = target.fp32_tflops / target.fp64_tflops if target.fp64_tflops else 0
    operations = len(re.findall(r"\.f64\b", request.compiled.ptx))
    slower = f", which {target.name} does at 1/{ratio:.0f} of its float rate" if ratio >= 1.5 else ""
    return f"{shown} in float code make {operations} double-precision instructions{slower}; as floats there are none of them."
