"""Descriptions of how a rewritten kernel's values differ: doubles computed as floats, and other handling of NaN."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import Kernel
from kernelmate.suggest.recipes.arithmetic_kinds import DOUBLE_LITERAL, FLOAT_LITERAL, INTEGER_LITERAL
from kernelmate.suggest.recipes.comments import code
from kernelmate.suggest.syntax import Node, Tree, read_tree

_NUMBER = re.compile(
    rf"[-+]?(?:{FLOAT_LITERAL.pattern}|{DOUBLE_LITERAL.pattern}|{INTEGER_LITERAL.pattern}|INFINITY|[A-Z]+_MAX)"
)
_DROPPING = re.compile(r"\b(?:fmaxf?|fminf?|__hmax2?|__hmin2?)\s*\(")
_ORDER = frozenset({"<", ">", "<=", ">="})


def changed_values(old: Kernel, new: Kernel, ptx: str) -> str:
    """Returns sentences on the differences, each with a leading blank; empty if there are none.

    Args:
        old: the baseline.
        new: the file with the written kernel; its helpers are in the same unit.
        ptx: the baseline's PTX, which has double arithmetic only if the compiler did not fold it.
    """
    before, after = read_tree(old), read_tree(new)
    if before is None or after is None:
        return ""
    return "".join(f" {one}" for one in (*_doubles(before, after, ptx), *_nans(before, after, old, new)))


def _doubles(before: Tree, after: Tree, ptx: str) -> Iterator[str]:
    written = code(after)
    if not re.search(r"\.f64\b", ptx) or re.search(r"\bdouble\b", written + code(before)):
        return
    literals = dict.fromkeys(
        text
        for node in before.walk("number_literal")
        if DOUBLE_LITERAL.fullmatch(text := before.text(node)) and not FLOAT_LITERAL.fullmatch(text)
    )
    if literals:
        shown = ", ".join([*literals][:3])
        yield f"The double literal{'s' * (len(literals) > 1)} {shown} made the old kernel compute in double; this one computes in float."
    else:
        yield "The old kernel computed in double in part; this one computes in float."


def _nans(before: Tree, after: Tree, old: Kernel, new: Kernel) -> Iterator[str]:
    known = set(old.unit.text.split("\n"))
    fresh = "\n".join(line.partition("//")[0] for line in new.unit.text.split("\n") if line not in known)
    was, now = _kinds(before, code(before)), _kinds(after, fresh)
    if was == {"drops"} and now == {"keeps"}:
        yield "NaN that the old kernel dropped in a maximum or minimum now reaches the result, as in the reference."
    elif was == {"keeps"} and now == {"drops"}:
        yield "NaN that the old kernel passed on through a maximum or minimum is dropped now."


def _kinds(tree: Tree, text: str) -> set[str]:
    """Returns how a kernel's maxima and minima treat NaN: a set of `drops` and `keeps`, empty without any."""
    found = {"drops"} if _DROPPING.search(text) else set()
    if re.search(r"\bisnan\s*\(", text):
        return {*found, "keeps"}
    for node in tree.walk("conditional_expression", "if_statement"):
        kind = _kind(tree, node)
        found |= {kind} if kind else set()
    return found


def _kind(tree: Tree, node: Node) -> str:
    """Returns how a maximum or minimum by comparison treats NaN: `drops` or `keeps`; empty for other statements."""
    condition = node.child_by_field_name("condition")
    while condition is not None and condition.type in ("parenthesized_expression", "condition_clause"):
        condition = next(iter(condition.named_children), None)
    if condition is None or condition.type != "binary_expression" or len(condition.named_children) != 2:
        return ""
    operator = condition.child_by_field_name("operator")
    sides = [_plain(tree, one) for one in condition.named_children]
    if operator is None or tree.text(operator) not in _ORDER or all(map(_NUMBER.fullmatch, sides)):
        return ""
    for taken, left in _choices(tree, node):
        if sorted((taken, left)) == sorted(sides):
            return "keeps" if _NUMBER.fullmatch(taken) else "drops"
    return ""


def _choices(tree: Tree, node: Node) -> Iterator[tuple[str, str]]:
    """Yields pairs of the value chosen if the condition holds, and the value kept if it does not."""
    if node.type == "conditional_expression":
        sides = [node.child_by_field_name(one) for one in ("consequence", "alternative")]
        if sides[0] is not None and sides[1] is not None:
            yield _plain(tree, sides[0]), _plain(tree, sides[1])
        return
    consequence = node.child_by_field_name("consequence")
    if consequence is None or node.child_by_field_name("alternative") is not None:
        return
    for one in tree.walk("assignment_expression", under=consequence):
        left, right = one.child_by_field_name("left"), one.child_by_field_name("right")
        if left is not None and right is not None:
            yield _plain(tree, right), _plain(tree, left)


def _plain(tree: Tree, node: Node) -> str:
    return re.sub(r"\s+", "", tree.text(node))
