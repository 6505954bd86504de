"""Separates two racing statements by a barrier.

The barrier is placed where every thread passes: in the innermost block that contains both statements, before the second
one; and at the end of a loop that repeats the first one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import RACES, FaultLocation, Repair, findings, line_of, statement_at
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import indent_of

_OTHER = re.compile(r"\bat line (\d+)")
_WARPS = "__syncwarp()"
MOST = 6


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields barriers for each race, from the innermost common block outwards, then one candidate with a barrier for every race."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    together: list[Edit] = []
    for spot in findings(request, RACES, warnings=True):
        if "of one launch have no order" in spot.message:
            continue
        both = _statements(tree, spot)
        if both is None:
            continue
        barriers = ["__syncthreads();"] + (["__syncwarp();"] if _WARPS in spot.message else [])
        for barrier in barriers:
            ways = list(_ways(tree, *both, barrier))[:MOST]
            together += ways[0] if ways and barrier == barriers[0] else []
            lines = " and ".join(
                dict.fromkeys(str(tree.kernel.unit.locate(line_of(tree, node), None)[0]) for node in both)
            )
            for edits in ways:
                why = f"Nothing orders the accesses of threads to the same memory in line {lines}; {barrier.rstrip(';')} does."
                yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)
    if len(together) > 1:
        kept = list({edit[:2]: edit for edit in together}.values())
        yield Rewrite(apply_edits(request.kernel, kept), request.contract, "A barrier orders each of the races.")


REPAIR = Repair("missing-barrier", ("correct",), (), rewrites, RACES)


def _statements(tree: Tree, spot: FaultLocation) -> tuple[Node, Node] | None:
    """Returns the two racing statements, in the order of the text; None if one cannot be located."""
    named = _OTHER.search(spot.message)
    one = statement_at(tree, spot)
    line = spot.line if named is None else _unit_line(tree, int(named[1]))
    other = one if line == spot.line else statement_at(tree, FaultLocation(spot.code, "", -1, line))
    if one is None or other is None:
        return None
    return (one, other) if one.start_byte <= other.start_byte else (other, one)


def _unit_line(tree: Tree, file_line: int) -> int:
    shift = tree.kernel.unit.locate(1, None)[0] - 1
    return file_line - shift


def _ways(tree: Tree, first: Node, second: Node, barrier: str) -> Iterator[list[Edit]]:
    """Yields sets of barriers to try: single positions, then positions combined with the end of a loop."""
    before: list[Edit] = []
    if first.id != second.id:
        child = _child_of_common(first, second)
        before = [] if child is None else [_before(tree, child, barrier)]
        if before:
            yield before
    ends = [_at_end(tree, block, barrier) for block in _loop_bodies(first) if _holds(block, second)]
    for end in ends:
        yield [end]
        if before:
            yield [*before, end]
    inner = [_after(tree, first, barrier)] if not ends or first.id == second.id else []
    if inner:
        yield inner


def _child_of_common(first: Node, second: Node) -> Node | None:
    """Returns the ancestor of the second statement in the innermost block that contains both."""
    node: Node | None = second
    while node is not None and node.parent is not None:
        parent = node.parent
        if parent.type == "compound_statement" and _holds(parent, first) and not _holds(node, first):
            return node
        node = parent
    return None


def _holds(outer: Node, inner: Node) -> bool:
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte


def _loop_bodies(node: Node) -> Iterator[Node]:
    """Yields the braced bodies of the loops around a statement, the innermost first."""
    parent = node.parent
    while parent is not None and parent.type != "function_definition":
        body = parent.child_by_field_name("body")
        loop = parent.type in {"for_statement", "while_statement", "do_statement"}
        if loop and body is not None and body.type == "compound_statement":
            yield body
        parent = parent.parent


def _before(tree: Tree, node: Node, barrier: str) -> Edit:
    start = tree.span(node)[0]
    return start, start, f"{barrier}\n{indent_of(tree, node)}"


def _after(tree: Tree, node: Node, barrier: str) -> Edit:
    while node.parent is not None and node.parent.type != "compound_statement":
        node = node.parent
    end = tree.span(node)[1]
    return end, end, f"\n{indent_of(tree, node)}{barrier}"


def _at_end(tree: Tree, block: Node, barrier: str) -> Edit:
    """Returns an insertion after the last statement of a loop's body."""
    inside = [child for child in block.named_children if child.type != "comment"]
    return _after(tree, inside[-1], barrier) if inside else (tree.span(block)[1] - 1, tree.span(block)[1] - 1, barrier)
