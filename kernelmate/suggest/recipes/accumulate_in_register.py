"""Accumulates a sum in a register that a loop keeps in global memory, and stores it once.

Applies to `y[r] += ...` in a loop in which `y[r]` is the same element. The compiler cannot do this itself, because
another pointer could refer to the same memory. Improves time and global traffic, and costs a register.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernelmate.records import Claim
from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree, statement_expression
from kernelmate.suggest.syntax_effects import (
    element_accesses,
    fresh,
    indent_of,
    index_of,
    is_written,
    only_pure_calls,
    operator,
    plain,
    root_name,
)
from kernelmate.suggest.syntax_loops import enclosing_loops, invariant, previous


@dataclass(frozen=True, slots=True)
class KeptElement:
    """An element that a loop reads and writes. `loop` is the outermost loop in which the element stays the same."""

    text: str
    array: str
    type: str
    loop: Node
    places: tuple[Node, ...]


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate; every element that a loop accumulates in global memory is accumulated in a register."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    kept = list(_kept(tree))
    edits: list[Edit] = []
    for number, one in enumerate(kept):
        name = fresh(tree, "sum" if len(kept) == 1 else f"sum{number}")
        edits += _edits(tree, one, name, [other.text for other in kept if other.loop.id == one.loop.id])
    if edits:
        texts = ", ".join(dict.fromkeys(one.text for one in kept))
        why = f"The loop reads and writes {texts} in global memory in every iteration; a register holds it, stored once after the loop."
        yield Rewrite(apply_edits(request.kernel, _joined(edits)), request.contract, why)


CLAIMS = (
    Claim(
        r"reads and writes (.+?) in global memory in every iteration; a register holds it",
        "global_bytes",
        instead=r"keeps \1 in a register",
    ),
)
RECIPE = Recipe("accumulate-in-register", ("time", "global_bytes"), ("registers",), rewrites, claims=CLAIMS)


def _kept(tree: Tree) -> Iterator[KeptElement]:
    pointers = {parameter.name: parameter.base for parameter in tree.kernel.signature.parameters if parameter.pointer}
    seen: set[tuple[int, str]] = set()
    for element in element_accesses(tree):
        array = root_name(tree, element)
        if array is None or array not in pointers or not is_written(tree, element):
            continue
        loop = _outermost(tree, element)
        text = plain(tree, element)
        if loop is None or (loop.id, text) in seen:
            continue
        seen.add((loop.id, text))
        inside = [other for other in element_accesses(tree, loop) if root_name(tree, other) == array]
        own = tuple(other for other in inside if plain(tree, other) == text)
        if _all_known(tree, loop, array, inside) and any(not _only_stored(tree, other) for other in own):
            yield KeptElement(tree.text(element), array, pointers[array], loop, own)


def _outermost(tree: Tree, element: Node) -> Node | None:
    """Returns the outermost loop that uses only this element of the array and calls no unknown function."""
    index = index_of(element)
    best = None
    for loop in enclosing_loops(element):
        parent = loop.parent
        if index is None or not _invariant_index(tree, index, loop) or not only_pure_calls(tree, loop):
            break
        if next(tree.walk("return_statement", "goto_statement", under=loop), None) is not None:
            break
        if parent is not None and parent.type == "compound_statement":
            best = loop
    return best


def _invariant_index(tree: Tree, index: Node, loop: Node) -> bool:
    if next(tree.walk("subscript_expression", "call_expression", under=index), None) is not None:
        return False
    return invariant(tree, index, loop)


def _all_known(tree: Tree, loop: Node, array: str, inside: list[Node]) -> bool:
    """Returns True if the loop uses the array only at indices with equal text or with a constant difference."""
    uses = [use for use in tree.uses(array) if loop.start_byte <= use.start_byte < loop.end_byte]
    if len(uses) != len(inside) or _pointers_into(tree, array):
        return False
    indices = [index_of(element) for element in inside]
    if any(index is None for index in indices):
        return False
    texts = {plain(tree, index) for index in indices if index is not None}
    return len(texts) == 1 or _differ_by_constants(texts)


def _differ_by_constants(texts: set[str]) -> bool:
    """True for indices such as `3*i+0`, `3*i+1`, which are never equal."""
    heads = {text.rpartition("+")[0] for text in texts}
    tails = [text.rpartition("+")[2] for text in texts]
    return len(heads) == 1 and heads != {""} and all(tail.isdigit() for tail in tails)


def _pointers_into(tree: Tree, array: str) -> bool:
    """Returns True if a local pointer is derived from the array, so that its elements could be accessed through it."""
    return any(
        variable is not None and variable.pointers and variable.value is not None and array in tree.text(variable.value)
        for variable in tree.variables.values()
    )


def _only_stored(tree: Tree, element: Node) -> bool:
    parent = element.parent
    return parent is not None and parent.type == "assignment_expression" and operator(tree, parent) == "=" and is_written(tree, element)  # fmt: skip


def _edits(tree: Tree, one: KeptElement, name: str, together: list[str]) -> Iterator[Edit]:
    indent = indent_of(tree, one.loop)
    start, end = tree.span(one.loop)
    first = _first_store(tree, one, together)
    if first is None:
        yield start, start, f"{one.type} {name} = {one.text};\n{indent}"
    else:
        expression = statement_expression(first)
        left = None if expression is None else expression.child_by_field_name("left")
        if left is not None:
            yield tree.replace(left, f"{one.type} {name}")
    for place in one.places:
        yield tree.replace(place, name)
    yield end, end, f"\n{indent}{one.text} = {name};"


def _first_store(tree: Tree, one: KeptElement, together: list[str]) -> Node | None:
    """Returns the statement `y[r] = value;` before the loop; only declarations and the like may lie in between."""
    wanted = {"".join(text.split()) for text in together}
    before = previous(one.loop)
    while before is not None:
        expression = statement_expression(before) if before.type == "expression_statement" else None
        if expression is None or expression.type != "assignment_expression":
            if before.type == "declaration" and one.array not in tree.text(before):
                before = previous(before)
                continue
            return None
        left = expression.child_by_field_name("left")
        if left is None or operator(tree, expression) != "=" or plain(tree, left) not in wanted:
            return None
        if plain(tree, left) == "".join(one.text.split()):
            return before
        before = previous(before)
    return None


def _joined(edits: list[Edit]) -> list[Edit]:
    """Joins insertions at the same offset into one edit, in their order."""
    merged: dict[tuple[int, int], str] = {}
    for start, end, text in edits:
        merged[start, end] = merged.get((start, end), "") + text
    return [(start, end, text) for (start, end), text in merged.items()]
