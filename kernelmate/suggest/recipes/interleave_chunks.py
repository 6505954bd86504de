"""Interleaves the elements of threads that each process a run of neighbouring elements.

Applies to a loop over `worker * COUNT + k` for k below COUNT whose iterations are independent. With runs, neighbouring
lanes are COUNT elements apart, and each access of a warp touches up to COUNT times as much memory; interleaved, the
lanes' elements are adjacent. Improves time.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.independent import independent_turns
from kernelmate.suggest.syntax import Node, Tree, read_tree, strip_parentheses
from kernelmate.suggest.syntax_effects import operator, plain
from kernelmate.suggest.syntax_loops import CountingLoop, global_index, is_global_index, loops


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that interleaves the first loop over a run of neighbouring elements."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    for loop in loops(tree):
        if plain(tree, loop.start) != "0" or loop.step != "1" or loop.inclusive or not independent_turns(tree, loop):
            continue
        found = _run(tree, loop)
        if found is None:
            continue
        node, worker = found
        text = f"{loop.name} * (gridDim.x * blockDim.x) + {worker}"
        kernel = apply_edits(request.kernel, [tree.replace(node, text)])
        why = f"Each thread takes {tree.text(loop.bound)} neighbouring elements, so the lanes of a warp are that far apart; interleaved, neighbouring lanes access neighbouring elements."  # fmt: skip
        yield Rewrite(kernel, request.contract, why)
        return


CLAIMS = (
    Claim(
        r", so the lanes of a warp are that far apart; interleaved, neighbouring lanes access neighbouring elements",
        "global_bytes",
        instead=" in a row; now the elements of threads are interleaved",
    ),
)
RECIPE = Recipe("interleave-chunks", ("time", "global_bytes"), (), rewrites, claims=CLAIMS)


def _run(tree: Tree, loop: CountingLoop) -> tuple[Node, str] | None:
    """Returns the expression `worker * COUNT + k` and the text of the worker, if no other expression uses k.

    The result is None otherwise.
    """
    uses = [node for node in tree.walk("identifier", under=loop.block) if tree.text(node) == loop.name]
    if len(uses) != 1:
        return None
    total = uses[0].parent
    while total is not None and total.type == "parenthesized_expression":
        total = total.parent
    if total is None or total.type != "binary_expression" or operator(tree, total) != "+":
        return None
    left, right = total.child_by_field_name("left"), total.child_by_field_name("right")
    if left is None or right is None:
        return None
    product = strip_parentheses(left if plain(tree, right) == loop.name else right)
    if product.type != "binary_expression" or operator(tree, product) != "*":
        return None
    one, other = product.child_by_field_name("left"), product.child_by_field_name("right")
    if one is None or other is None:
        return None
    worker, count = (one, other) if plain(tree, other) == plain(tree, loop.bound) else (other, one)
    if plain(tree, count) != plain(tree, loop.bound) or not _is_worker(tree, worker):
        return None
    return total, tree.text(worker)


def _is_worker(tree: Tree, node: Node) -> bool:
    """Returns True if the expression is the thread's index in the grid, or the variable that holds it."""
    if node.type == "identifier":
        return global_index(tree) == tree.text(node)
    return is_global_index(tree, node)
