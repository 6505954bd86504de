"""Replaces divisions by multiplications and shifts.

Applies to a float division by a loop invariant (one reciprocal before the loop), to one by a literal or a named constant of
the file that is not a power of two, and to `/` and `%` of a thread index by a power of two: signed division needs corrections
that a non-negative index does not. Improves time. A product with a reciprocal may differ from the quotient in the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import frexp

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, integer_constants, integer_value, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import constant_after_start, fresh, indent_of, names, operator, plain
from kernelmate.suggest.syntax_loops import enclosing_loops, invariant, is_global_index

_FLOAT = re.compile(r"(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?[fF]")

_WHOLE = {"init_declarator", "parenthesized_expression", "subscript_argument_list", "argument_list"}
"""Node types of parents in which an expression is the operand of no other operator."""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that replaces all divisions to which the recipe applies."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    edits: list[Edit] = []
    changed: list[str] = []
    before: dict[tuple[int, str], str] = {}
    for node in tree.walk("binary_expression"):
        if operator(tree, node) not in {"/", "%"} or _inside_changed(tree, node, edits):
            continue
        edit = _by_literal(tree, node) or _of_thread(tree, node) or _by_invariant(tree, node, before)
        if edit is not None:
            edits.append(edit)
            changed.append(" ".join(tree.text(node).split()))
    for (start, name), inverse in before.items():
        indent = _indent(tree, start)
        edits.append((start, start, f"const float {inverse} = 1.0f / {name};\n{indent}"))
    if edits:
        why = f"A division takes many times as long as a multiplication or shift: {', '.join(dict.fromkeys(changed))}."
        yield Rewrite(apply_edits(request.kernel, _joined(edits)), request.contract, why)


RECIPE = Recipe("divide", ("time", "registers"), ("accuracy",), rewrites)


def _sides(node: Node) -> tuple[Node, Node] | None:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    return None if left is None or right is None else (left, right)


def _inside_changed(tree: Tree, node: Node, edits: list[Edit]) -> bool:
    start, end = tree.span(node)
    return any(start < high and low < end for low, high, _ in edits)


def _by_literal(tree: Tree, node: Node) -> Edit | None:
    """Rewrites `x / 3.0f` as a product with the reciprocal, which the compiler evaluates."""
    sides = _sides(node)
    if sides is None or operator(tree, node) != "/":
        return None
    right = tree.text(sides[1])
    literal = right if sides[1].type == "number_literal" else _constant(tree, right)
    if literal is None or not _FLOAT.fullmatch(literal):
        return None
    if sides[0].type == "number_literal":
        return None  # the compiler divides the two
    value = float(literal.rstrip("fF"))
    if value == 0 or abs(frexp(value)[0]) == 0.5 or not 1e-30 < abs(value) < 1e30:
        return None
    return *tree.span(node), f"{tree.text(sides[0])} * (1.0f / {right})"


def _constant(tree: Tree, name: str) -> str | None:
    """Returns the literal of a constant of type float that the file defines once above the kernel; None for other names."""
    if not name.isidentifier() or tree.variable(name) is not None:
        return None
    before = tree.kernel.unit.text[: tree.kernel.start]
    declared = (
        rf"^[ \t]*(?:(?:static|inline|__device__|__constant__)\s+)*(?:const|constexpr)\s+float\s+{name}\s*=\s*([^;,]+);"
    )
    found = re.findall(rf"{declared}|^[ \t]*#[ \t]*define[ \t]+{name}[ \t]+(\S+)[ \t]*$", before, re.MULTILINE)
    return (found[0][0] or found[0][1]).strip() if len(found) == 1 else None


def _of_thread(tree: Tree, node: Node) -> Edit | None:
    """Rewrites `i / 32` and `i % 32` as a shift and a mask, if i is the thread's index and so never negative."""
    sides = _sides(node)
    if sides is None or sides[0].type != "identifier":
        return None
    variable = tree.variable(tree.text(sides[0]))
    count = integer_value(tree.text(sides[1]), integer_constants(tree.kernel.unit.text))
    if (
        variable is None
        or variable.value is None
        or variable.type != "int"
        or count is None
        or count < 2
        or count & (count - 1)
    ):
        return None
    own = plain(tree, variable.value) == "threadIdx.x" or is_global_index(tree, variable.value)
    if not own or not constant_after_start(tree, variable.name):
        return None
    shift = f">> {count.bit_length() - 1}" if operator(tree, node) == "/" else f"& {count - 1}"
    alone = node.parent is not None and node.parent.type in _WHOLE
    return *tree.span(node), f"{variable.name} {shift}" if alone else f"({variable.name} {shift})"


def _by_invariant(tree: Tree, node: Node, before: dict[tuple[int, str], str]) -> Edit | None:
    """Rewrites `x / total` in a loop that does not change `total` as a product with a reciprocal."""
    sides = _sides(node)
    if sides is None or operator(tree, node) != "/":
        return None
    divisor = strip_parentheses(sides[1])
    variable = tree.variable(tree.text(divisor)) if divisor.type == "identifier" else None
    if variable is None or variable.type != "float" or variable.pointers or variable.dims or _wide(tree, sides[0]):
        return None
    best = None
    for loop in enclosing_loops(node):
        if not invariant(tree, divisor, loop):
            break
        if loop.parent is not None and loop.parent.type == "compound_statement":
            best = loop
    if best is None:
        return None
    key = (tree.span(best)[0], variable.name)
    inverse = before.setdefault(key, fresh(tree, f"{variable.name}_inverse"))
    return *tree.span(node), f"{tree.text(sides[0])} * {inverse}"


def _wide(tree: Tree, node: Node) -> bool:
    """Returns True if the dividend may be a double: it contains a literal without f, or a variable of another type."""
    if any(
        not re.search(r"[fFuUlL]$", tree.text(n)) and "." in tree.text(n)
        for n in tree.walk("number_literal", under=node)
    ):
        return True
    return any((v := tree.variable(name)) is not None and v.type == "double" for name in names(tree, node))


def _indent(tree: Tree, position: int) -> str:
    node = next(n for n in tree.walk("for_statement", "while_statement", "do_statement") if tree.span(n)[0] == position)
    return indent_of(tree, node)


def _joined(edits: list[Edit]) -> list[Edit]:
    merged: dict[tuple[int, int], str] = {}
    for start, end, text in edits:
        merged[start, end] = merged.get((start, end), "") + text
    return [(start, end, text) for (start, end), text in merged.items()]
