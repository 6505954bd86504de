"""Unrolls innermost loops by a pragma, or prevents their unrolling.

Unrolling issues the loads of several iterations together, which improves time and costs registers. Preventing it saves
registers, because the compiler's own unrolling keeps the values of several iterations.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.suggest.syntax_effects import indent_of
from kernelmate.suggest.syntax_loops import read_loop

TURNS = (4, 8)
LOOPS = ("for_statement", "while_statement", "do_statement")


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields each unroll factor if time is the objective; for registers, one candidate without unrolling."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    inner = [node for node in tree.walk(*LOOPS) if next(_below(tree, node), None) is None]
    fewer = request.objective.metric in {"registers", "occupancy", "local_bytes"}
    if fewer:
        every = list(tree.walk(*LOOPS))
        edits = [edit for node in every for edit in pragma(tree, node, "unroll 1")]
        if edits:
            why = "The compiler unrolls loops by itself and keeps the values of several iterations; without unrolling, it needs fewer registers."  # fmt: skip
            yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)
        return
    wanted = [node for node in inner if _worth_unrolling(tree, node)]
    for turns in TURNS:
        edits = [edit for node in wanted for edit in pragma(tree, node, f"unroll {turns}")]
        if edits:
            why = f"Loads of {turns} iterations of the innermost loop are in flight at once instead of one after another."  # fmt: skip
            yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


CLAIMS = (
    Claim(
        r"without unrolling, it needs fewer registers", "registers", instead="without unrolling, it keeps those of one"
    ),
)
RECIPE = Recipe("unroll", ("time", "registers", "occupancy", "local_bytes"), ("registers",), rewrites, claims=CLAIMS)


def _below(tree: Tree, node: Node) -> Iterator[Node]:
    return (other for other in tree.walk(*LOOPS, under=node) if other.id != node.id)


def _worth_unrolling(tree: Tree, node: Node) -> bool:
    """Returns True for a counting loop of unknown length that loads elements and has no barrier and no pragma."""
    loop = read_loop(tree, node)
    if loop is None or tree.text(loop.bound).strip().isdigit() or "__sync" in tree.text(node):
        return False
    return next(tree.walk("subscript_expression", under=node), None) is not None and _own_pragma(node) is None


def _own_pragma(node: Node) -> Node | None:
    before = node.prev_named_sibling
    while before is not None and before.type == "comment":
        before = before.prev_named_sibling
    return (
        before if before is not None and before.type == "preproc_call" and b"unroll" in (before.text or b"") else None
    )


def pragma(tree: Tree, node: Node, text: str) -> Iterator[Edit]:
    """Yields edits that put the pragma on its own line before a loop, or replace an existing one."""
    present = _own_pragma(node)
    if present is not None:
        argument = present.child_by_field_name("argument")
        if argument is not None:
            yield tree.replace(argument, text)
        return
    parent = node.parent
    if parent is None or parent.type != "compound_statement":
        return
    start = tree.span(node)[0]
    source = tree.kernel.unit.text
    line = source.rfind("\n", 0, start) + 1
    if source[line:start].strip():
        yield start, start, f"\n#pragma {text}\n{indent_of(tree, node)}"
    else:
        yield line, line, f"#pragma {text}\n"
