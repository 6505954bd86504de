"""Shortens a shared array to the part that the block uses.

Applies to static arrays whose accesses never reach the declared length, with the launched block at every listed size.
Improves shared memory and occupancy. Padding against bank conflicts is removed too; `pad-shared-tile` adds it again if
that is faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from kernelmate.source import apply_edits
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Recipe, Rewrite
from kernelmate.suggest.recipes.own_shared_element import indices_of
from kernelmate.suggest.strides import LaneEvaluator, lanes_of
from kernelmate.suggest.syntax import DeclaredVariable, Edit, Node, Tree, integer_constants, integer_value, read_tree
from kernelmate.suggest.syntax_effects import BUILTINS, constant_after_start, element_accesses, names, root_name
from kernelmate.suggest.syntax_loops import loops

DEEPEST = 20
MOST_PLACES = 1 << 14
"""Largest number of threads times iterations for which an index is evaluated."""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate that shortens all static shared arrays that are longer than their accesses reach."""
    tree = read_tree(request.kernel)
    if tree is None:
        return
    every = [lanes_of(tree, replace(request.contract, sizes=(size,))) for size in request.contract.sizes]
    known = [lanes for lanes in every if lanes is not None]
    if len(known) != len(every):
        return
    edits: list[Edit] = []
    told: list[str] = []
    for variable in tree.shared_arrays():
        dims = _used(tree, known, variable)
        if dims is not None:
            edits += _edits(tree, variable, dims)
            told.append(f"{variable.name} to [{']['.join(map(str, dims))}]")
    if edits:
        why = f"No thread of the block reaches the end of what is declared; {' and '.join(told)} is all that is used."
        yield Rewrite(apply_edits(request.kernel, edits), request.contract, why)


RECIPE = Recipe("trim-shared", ("shared_bytes", "occupancy"), ("time",), rewrites)


def _used(tree: Tree, every: Sequence[LaneEvaluator], variable: DeclaredVariable) -> tuple[int, ...] | None:
    """Returns the used lengths if they are less than the declared ones; else None."""
    constants = integer_constants(tree.kernel.unit.text)
    declared = [integer_value(dim, constants) for dim in variable.dims]
    elements = [one for one in element_accesses(tree) if root_name(tree, one) == variable.name]
    if "extern" in variable.qualifiers or None in declared or len(elements) != len(tree.uses(variable.name)):
        return None
    most = [0] * len(declared)
    for element in elements:
        indices = indices_of(element)
        if len(indices) != len(declared):
            return None
        for place, index in enumerate(indices):
            for lanes in every:
                largest = _largest(tree, lanes, index, element)
                if largest is None:
                    return None
                most[place] = max(most[place], largest + 1)
    less = all(used <= (had or 0) for used, had in zip(most, declared, strict=True))
    return tuple(most) if less and most != declared else None


def _largest(tree: Tree, lanes: LaneEvaluator, index: Node, element: Node) -> int | None:
    """Returns the largest value of an index over the block's threads and the iterations of loops around it.

    The result is None if unknown.
    """
    if not _same_in_every_block(tree, index, 0):
        return None
    around = [loop for loop in loops(tree) if loop.node.start_byte <= element.start_byte < loop.node.end_byte]
    turns: list[list[tuple[str, float | None]]] = []
    for loop in around:
        start, bound = lanes.value(loop.start, (0, 0, 0)), lanes.value(loop.bound, (0, 0, 0))
        if start is None or bound is None:
            turns.append([(loop.name, None)])
            continue
        last = bound if loop.inclusive else bound - 1
        ends = range(start, last + 1) if loop.step == "1" and last - start < 256 else (start, last)
        turns.append([(loop.name, float(value)) for value in ends] or [(loop.name, float(start))])
    sides = lanes.shape.block
    threads = list(product(range(sides[0]), range(sides[1]), range(sides[2])))
    combined = list(product(*turns))
    if len(threads) * len(combined) > MOST_PLACES:
        threads = [
            thread for thread in threads if all(at in {0, side - 1} for at, side in zip(thread, sides, strict=True))
        ]
    if len(threads) * len(combined) > MOST_PLACES:
        return None
    largest = -1
    for thread in threads:
        for turn in combined:
            known = {name: value for name, value in turn if value is not None}
            if len(known) != len(turn) and any(name in tree.text(index) for name, value in turn if value is None):
                return None
            value = lanes.value(index, thread, known)
            if value is None:
                return None
            largest = max(largest, value)
    return largest


def _same_in_every_block(tree: Tree, node: Node, depth: int) -> bool:
    """Returns True if the expression does not depend on the block's index, and varies only with loop variables."""
    if depth > DEEPEST or "blockIdx" in tree.text(node):
        return False
    counted = {loop.name for loop in loops(tree)}
    for name in names(tree, node) - BUILTINS - counted:
        variable = tree.variable(name)
        if variable is None or variable.declaration.type == "parameter_declaration":
            continue
        if not constant_after_start(tree, name) or variable.value is None:
            return False
        if not _same_in_every_block(tree, variable.value, depth + 1):
            return False
    return True


def _edits(tree: Tree, variable: DeclaredVariable, dims: tuple[int, ...]) -> Iterator[Edit]:
    """Yields edits of the lengths in the declaration; outer declarators have the outer lengths."""
    sizes = []
    node: Node | None = variable.node
    while node is not None and node.type == "array_declarator":
        size = node.child_by_field_name("size")
        if size is None:
            return
        sizes.append(size)
        node = node.child_by_field_name("declarator")
    for size, length in zip(reversed(sizes), dims, strict=True):
        if tree.text(size) != str(length):
            yield tree.replace(size, str(length))
