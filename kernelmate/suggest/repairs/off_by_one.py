"""Corrects a comparison that admits one element too many or too few: `<=` becomes `<`, and the reverse.

Each comparison of a loop head or of a condition is changed alone, those that may admit too many first.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import WRONG_OUTPUTS
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import BOUNDS, UNINITIALISED, Repair, each_then_all, line_of
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import operator

_NARROWER = {"<=": "<", ">=": ">"}
_WIDER = {"<": "<=", ">": ">="}
MOST = 6


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields narrower loops and wider early returns; if results are wrong or missing, also the reverse."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    narrow: list[tuple[Edit, str]] = []
    wide: list[tuple[Edit, str]] = []
    for comparison, leaves in _comparisons(tree):
        sign = operator(tree, comparison)
        too_wide, too_narrow = (_WIDER, _NARROWER) if leaves else (_NARROWER, _WIDER)
        if sign in too_wide:
            narrow.append(_changed(tree, comparison, too_wide[sign], "one too many"))
        elif sign in too_narrow:
            wide.append(_changed(tree, comparison, too_narrow[sign], "one too few"))
    yield from each_then_all(request, narrow[:MOST], "Every comparison that admits one element too many is narrowed.")
    if any(finding.code in WRONG_OUTPUTS for finding in request.verdict.findings):
        for edit in wide[:MOST]:
            yield from each_then_all(request, [edit], "")


REPAIR = Repair("off-by-one", ("correct",), (), rewrites, BOUNDS | WRONG_OUTPUTS | UNINITIALISED)


def _comparisons(tree: Tree) -> Iterator[tuple[Node, bool]]:
    """Yields comparisons that control execution; the flag is True for those of early exits."""
    for node in tree.walk("for_statement", "while_statement", "if_statement", "conditional_expression"):
        clause = node.child_by_field_name("condition")
        value = None if clause is None else clause.child_by_field_name("value") or clause
        if value is None:
            continue
        then = node.child_by_field_name("consequence") if node.type == "if_statement" else None
        leaves = then is not None and next(tree.walk("return_statement", "continue_statement", "break_statement", under=then), None) is not None  # fmt: skip
        for comparison in tree.walk("binary_expression", under=value):
            if operator(tree, comparison) in {"<", "<=", ">", ">="}:
                yield comparison, leaves


def _changed(tree: Tree, comparison: Node, sign: str, what: str) -> tuple[Edit, str]:
    node = comparison.child_by_field_name("operator")
    assert node is not None, "a comparison has an operator"
    line = tree.kernel.unit.locate(line_of(tree, comparison), None)[0]
    return tree.replace(node, sign), f"`{tree.text(comparison)}` in line {line} lets {what} in: `{sign}` is meant."
