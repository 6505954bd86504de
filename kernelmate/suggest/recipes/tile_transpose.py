"""Moves a transposing copy through a tile in shared memory, so that both loads and stores are coalesced.

Applies to `out[... x ... y] = in[... y ... x]`, one load and one store, one of which is strided for every mapping of
the block. Improves time and global traffic, and costs shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite, relaunch
from kernelmate.suggest.recipes.literal_blocks import block_sides
from kernelmate.suggest.recipes.tiles import ROWS, SIDE, TransposedTile, sides
from kernelmate.suggest.strides import lanes_of
from kernelmate.suggest.syntax import (  # fmt: skip
    ELEMENT_BYTES,
    Edit,
    Node,
    Tree,
    read_tree,
    statement_expression,
    strip_parentheses,
)
from kernelmate.suggest.syntax_effects import (  # fmt: skip
    element_accesses,
    fresh,
    indent_of,
    indent_step,
    index_of,
    is_written,
    operator,
    root_name,
    statements,
    substitute,
)
from kernelmate.suggest.syntax_loops import GuardedWork, global_index, guarded


@dataclass(frozen=True, slots=True)
class Transposition:
    """A transposing copy `store = load;` under a guard; `fast` is contiguous for the load, `slow` for the store."""

    guard: GuardedWork
    store: Node
    load: Node
    type: str
    fast: str
    slow: str


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate: blocks of 32 x 8 threads, each with a tile of 32 x 32."""
    tree = read_tree(request.kernel)
    block = block_sides(request.contract)
    if tree is None or block is None or len(block) != 2 or len(request.contract.grid) != 2:
        return
    found = _transposition(request, tree, block)
    if found is None:
        return
    extents = _extents(request, found[1])
    if extents is None:
        return
    kernel = apply_edits(request.kernel, _edits(tree, found[0], found[1]))
    grid = (f"cdiv({extents[0]}, {SIDE})", f"cdiv({extents[1]}, {SIDE})")
    kernel, contract = relaunch(request, kernel, grid=grid, block=(str(SIDE), str(ROWS)))
    size = SIDE * (SIDE + 1) * ELEMENT_BYTES[found[0].type]
    why = f"Reads of {root_name(tree, found[0].load)} or writes of {root_name(tree, found[0].store)} are a row apart whichever way the block is oriented; through a tile of {size} bytes in shared memory both are contiguous."  # fmt: skip
    yield Rewrite(kernel, contract, why)


CLAIMS = (
    Claim(
        r" are a row apart whichever way the block is oriented; through a tile of (\d+) bytes in shared memory both are contiguous",
        "global_bytes",
        instead=r" go through a tile of \1 bytes in shared memory",
    ),
)
RECIPE = Recipe("tile-transpose", ("time", "global_bytes"), ("shared_bytes",), rewrites, claims=CLAIMS)


def _transposition(
    request: SuggestRequest, tree: Tree, sides: tuple[int, ...]
) -> tuple[Transposition, tuple[str, str]] | None:
    """Returns the copy, and the names of the bounds of columns and rows."""
    within = statements(tree.body)
    guard = guarded(tree, within)
    if guard is None or len(guard.rest) != 1 or "__shared__" in tree.kernel.source or len(guard.conjuncts) != 2:
        return None
    if any(node.type != "declaration" for node in within[: within.index(guard.node)]):
        return None
    names = {axis: global_index(tree, axis, side) for axis, side in zip("xy", sides, strict=True)}
    expression = statement_expression(guard.rest[0])
    elements = list(element_accesses(tree, guard.rest[0]))
    if expression is None or expression.type != "assignment_expression" or operator(tree, expression) != "=" or len(elements) != 2:  # fmt: skip
        return None
    right = expression.child_by_field_name("right")
    store, load = elements
    if right is None or strip_parentheses(right).id != load.id or not is_written(tree, store) or is_written(tree, load):
        return None
    variable = tree.variable(root_name(tree, load) or "")
    other = tree.variable(root_name(tree, store) or "")
    if variable is None or other is None or variable.type != other.type or variable.type not in ELEMENT_BYTES:
        return None
    if ELEMENT_BYTES[variable.type] > 8 or names["x"] is None or names["y"] is None:
        return None
    axes = _axes(request, tree, load, store, {"x": names["x"], "y": names["y"]})
    bounds = _bounds(guard, names["x"], names["y"])
    if axes is None or bounds is None:
        return None
    fast, slow = axes
    ordered = (bounds[fast], bounds[slow])
    return Transposition(guard, store, load, variable.type, fast, slow), ordered


def _axes(
    request: SuggestRequest, tree: Tree, load: Node, store: Node, names: dict[str, str]
) -> tuple[str, str] | None:
    """Returns the variables along which the load and the store are contiguous; None if unknown."""
    lanes = lanes_of(tree, request.contract)
    if lanes is None:
        return None
    found = []
    for element in (load, store):
        index = index_of(element)
        if index is None:
            return None
        strides = {}
        for name in names.values():
            zero = dict.fromkeys(names.values(), 0.0)
            one, none = lanes.value(index, (0, 0, 0), {**zero, name: 1.0}), lanes.value(index, (0, 0, 0), zero)
            strides[name] = None if one is None or none is None else one - none
        near = [name for name, stride in strides.items() if stride == 1]
        if len(near) != 1:
            return None
        found.append(near[0])
    return (found[0], found[1]) if found[0] != found[1] else None


def _bounds(guard: GuardedWork, x: str, y: str) -> dict[str, str] | None:
    found = {}
    for text in guard.conjuncts:
        match = re.fullmatch(r"(\w+)\s*<\s*(\w+)", text) or re.fullmatch(r"(?P<b>\w+)\s*>\s*(?P<n>\w+)", text)
        if match is None:
            return None
        name, bound = (match[1], match[2]) if "<" in text else (match["n"], match["b"])
        found[name] = bound
    return found if set(found) == {x, y} else None


def _extents(request: SuggestRequest, bounds: tuple[str, str]) -> tuple[str, str] | None:
    """Returns the bounds as contract expressions: sizes that are arguments of the kernel."""
    sizes = {argument.name for argument in request.contract.args if argument.shape is None and argument.value is None}
    return bounds if set(bounds) <= sizes else None


def _edits(tree: Tree, found: Transposition, bounds: tuple[str, str]) -> list[Edit]:
    indent, step = indent_of(tree, found.guard.node), indent_step(tree)
    fast, slow = found.fast, found.slow
    names = {fast: fresh(tree, f"{fast}_of"), slow: fresh(tree, f"{slow}_of")}
    side, rows, constants = sides(tree)
    turned = TransposedTile(fresh(tree, "tile"), fresh(tree, "k"), names[fast], names[slow], bounds, step, side, rows)
    load, store = substitute(tree, found.load, names), substitute(tree, found.store, names)
    lines = [turned.declared(found.type), *turned.moved(load, lambda element: f"{store} = {element};")]
    last = found.guard.rest[-1] if found.guard.returns else found.guard.node
    edits: list[Edit] = [*constants, (tree.span(found.guard.node)[0], tree.span(last)[1], f"\n{indent}".join(lines))]
    for name in (fast, slow):
        variable = tree.variable(name)
        if variable is not None and len(variable.declaration.children_by_field_name("declarator")) == 1:
            edits.append(_without_line(tree, variable.declaration))
    return edits


def _without_line(tree: Tree, node: Node) -> Edit:
    text = tree.kernel.unit.text
    start, end = tree.span(node)
    line = text.rfind("\n", 0, start) + 1
    if not text[line:start].strip() and text[end : end + 1] == "\n":
        return line, end + 1, ""
    return start, end, ""
