"""Reverses a sign of a formula: `a * c + b * d` becomes `a * c - b * d`.

Each sum or difference of floats is tried alone, except those in indices. Only the reference shows which one is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import WRONG_OUTPUTS
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import Repair, each_then_all, line_of
from kernelmate.suggest.repairs.integer_ratio import FLOATING
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import operator, root_name

MOST = 6
"""Largest number of signs to try; formulas with more than twice as many are not repaired."""

_TURNED = {"+": "-", "-": "+", "+=": "-=", "-=": "+="}


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate for each sign, those of products first."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    found = [node for node in tree.walk("binary_expression", "assignment_expression") if _of_floats(tree, node)]
    if len(found) > 2 * MOST:
        return
    found.sort(key=lambda node: not _joins_products(tree, node))
    for node in found[:MOST]:
        sign = node.child_by_field_name("operator")
        if sign is not None:
            line = tree.kernel.unit.locate(line_of(tree, node), None)[0]
            turned = _TURNED[tree.text(sign)]
            edit: Edit = tree.replace(sign, turned)
            yield from each_then_all(
                request, [(edit, f"The sign of `{tree.text(node)}` in line {line} is `{turned}`.")], ""
            )


REPAIR = Repair("sign", ("correct",), (), rewrites, WRONG_OUTPUTS)


def _of_floats(tree: Tree, node: Node) -> bool:
    """True for a sum or difference with a float operand that is not part of an index or a condition."""
    if operator(tree, node) not in _TURNED:
        return False
    above = node.parent
    while above is not None and above.type not in {"compound_statement", "function_definition"}:
        if above.type in {"subscript_expression", "subscript_argument_list", "condition_clause", "for_statement"}:
            return False
        above = above.parent
    named = (tree.variable(root_name(tree, one) or "") for one in tree.walk("identifier", under=node))
    return any(variable is not None and variable.type in FLOATING for variable in named)


def _joins_products(tree: Tree, node: Node) -> bool:
    right = node.child_by_field_name("right")
    return right is not None and right.type == "binary_expression" and operator(tree, right) == "*"
