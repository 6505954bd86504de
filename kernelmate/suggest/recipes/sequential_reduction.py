"""Makes the active threads of a tree reduction adjacent.

Applies to `for (s = 1; s < blockDim.x; s *= 2) if (t % (2 * s) == 0) a[t] += a[t + s];` in blocks whose size is a power
of two. In the original, every warp has few active threads, and they access the same banks; with distances that are
halved in each step, whole warps become idle. Improves time, and enables the reduction by shuffles. Sums of floats are
added in another order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import Contract
from kernelmate.source import apply_edits, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, is_barrier, read_tree, statement_expression
from kernelmate.suggest.syntax_effects import constant_after_start, operator, plain, statements


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that reverses every loop of a tree reduction with rising distances."""
    tree = read_tree(request.kernel)
    if tree is None or not _power_of_two(request.contract):
        return
    edits: list[Edit] = []
    for node in tree.walk("for_statement"):
        edits += _turned(tree, node)
    if edits:
        why = "The tree's active threads are every second, fourth, ... of the block, so each warp stays busy for a few of them; with the distance halved instead they are the first ones, and whole warps rest."  # fmt: skip
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


RECIPE = Recipe("sequential-reduction", ("time",), ("accuracy",), rewrites)


def _power_of_two(contract: Contract) -> bool:
    shapes = [launch_shape(contract, size).block for size in contract.sizes]
    return all(shape[1:] == (1, 1) and shape[0] & (shape[0] - 1) == 0 for shape in shapes)


def _turned(tree: Tree, node: Node) -> list[Edit]:
    """Returns the edits of one loop; empty if it has another form."""
    opening, condition, update, body = (
        node.child_by_field_name(field) for field in ("initializer", "condition", "update", "body")
    )
    if opening is None or condition is None or update is None or body is None or opening.type != "declaration":
        return []
    match = re.fullmatch(r"(?:const )?(unsigned int|unsigned|int|size_t) (\w+)=1u?;", plain(tree, opening))
    if match is None:
        return []
    name = match[2]
    length = _length(tree, condition, name)
    if length is None or plain(tree, update) not in {
        f"{name}*=2",
        f"{name}<<=1",
        f"{name}={name}*2",
        f"{name}+={name}",
    }:
        return []
    parts = statements(body)
    if len(parts) != 2 or is_barrier(tree, parts[0]) == is_barrier(tree, parts[1]):
        return []
    guarded = parts[1] if is_barrier(tree, parts[0]) else parts[0]
    clause = guarded.child_by_field_name("condition") if guarded.type == "if_statement" else None
    tested = None if clause is None else clause.child_by_field_name("value")
    if tested is None or guarded.child_by_field_name("alternative") is not None:
        return []
    thread = _thread(tree, tested, name)
    if thread is None or not _combines(tree, guarded, thread, name):
        return []
    half = f"{match[1]} {name} = {length} / 2;"
    return [
        tree.replace(opening, half),
        tree.replace(condition, f"{name} > 0"),
        tree.replace(update, f"{name} /= 2"),
        tree.replace(tested, f"{thread} < {name}"),
    ]


def _length(tree: Tree, condition: Node, name: str) -> str | None:
    match = re.fullmatch(rf"{name}<(.+)", plain(tree, condition))
    if match is None:
        return None
    if match[1] == "blockDim.x":
        return match[1]
    variable = tree.variable(match[1])
    if variable is None or variable.value is None or not constant_after_start(tree, match[1]):
        return None
    return match[1] if plain(tree, variable.value) == "blockDim.x" else None


def _thread(tree: Tree, tested: Node, name: str) -> str | None:
    """Returns the text of the thread's index in the condition `t % (2 * s) == 0`; None for any other condition."""
    match = re.fullmatch(
        rf"\(?([\w.]+)(?:%\((?:2\*{name}|{name}\*2|{name}<<1)\)|&\((?:2\*{name}|{name}\*2)-1\))\)?==0u?",
        plain(tree, tested),
    )
    if match is None:
        return None
    if match[1] == "threadIdx.x":
        return match[1]
    variable = tree.variable(match[1])
    known = variable is not None and variable.value is not None and plain(tree, variable.value) == "threadIdx.x"
    return match[1] if known and constant_after_start(tree, match[1]) else None


def _combines(tree: Tree, guarded: Node, thread: str, name: str) -> bool:
    """Returns True if each statement combines a[t] and a[t + s] of a shared array by a commutative operation."""
    then = guarded.child_by_field_name("consequence")
    if then is None:
        return False
    t, s = re.escape(thread), re.escape(name)
    far = rf"\1\[(?:{t}\+{s}|{s}\+{t})\]"
    near = rf"\1\[{t}\]"
    shapes = (rf"(\w+)\[{t}\]\+={far}", rf"(\w+)\[{t}\]={near}\+{far}", rf"(\w+)\[{t}\]={far}\+{near}",
              rf"(\w+)\[{t}\]=f?(?:max|min)f?\((?:{near},{far}|{far},{near})\)")  # fmt: skip
    for statement in statements(then):
        expression = statement_expression(statement)
        if (
            expression is None
            or expression.type != "assignment_expression"
            or operator(tree, expression) not in {"=", "+="}
        ):
            return False
        text = plain(tree, expression)
        match = next((found for shape in shapes if (found := re.fullmatch(shape, text))), None)
        array = None if match is None else tree.variable(match[1])
        if array is None or not array.shared:
            return False
    return True
